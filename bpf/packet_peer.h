/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * To whom a socket sends of whose calls no hook tells: raw and ICMP sockets,
 * and what else is neither TCP nor UDP. Their packets do, at the egress hook.
 */
#ifndef NETNICE_PACKET_PEER_H
#define NETNICE_PACKET_PEER_H

#include "destination.h"
#include "frame.h"

/* Of nn_socket.protocol: neither TCP nor UDP, no number of a protocol's. */
#define NN_PROTOCOL_OTHER 255

/* The address that a packet is for is that of its socket from now on. */
static __noinline int nn_packet_peer(struct __sk_buff *skb, struct nn_socket *s)
{
	__u32 words[4] = {0, 0, bpf_htonl(0xffff)};
	long err;

	if (!s)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		err = bpf_skb_load_bytes(skb, 24, words, sizeof(words));
	else
		err = bpf_skb_load_bytes(skb, 16, &words[3], sizeof(words[3]));
	/* and port 0, which no range of them has */
	return !err && nn_peer_called(s, words, 0, NN_PROTOCOL_OTHER);
}

/* A packet of a socket with state, before it is asked what holds for it. */
static __always_inline void nn_packet_destined(struct __sk_buff *skb,
					       struct bpf_sock *sk,
					       struct nn_socket *s)
{
	struct nn_policy *p;

	if (s->protocol == IPPROTO_TCP || s->protocol == IPPROTO_UDP)
		return;
	p = nn_policy();
	if (!p || !p->destinations)
		return;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol == IPPROTO_TCP ||
	    sk->protocol == IPPROTO_MPTCP ||
	    (sk->protocol == IPPROTO_UDP && sk->type != SOCK_RAW))
		return;
	nn_packet_peer(skb, s);
}

#endif
