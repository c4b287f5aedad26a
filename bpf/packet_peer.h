/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * To whom a socket sends of whose calls no hook tells: raw and ICMP sockets,
 * and what else is neither TCP nor UDP. Their packets do, at the egress hook.
 * And a UDP socket that is connected, by calls that name nobody: after one that
 * has named another its packets tell, too.
 */
#ifndef NETNICE_PACKET_PEER_H
#define NETNICE_PACKET_PEER_H

#include "datagram.h"
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

/* To whom a socket is connected. Each word passes a register of its own: the
 * verifier refuses the address of a field, which the compiler makes else. */
static __always_inline void nn_connected_to(struct bpf_sock *sk, __u32 *words)
{
	__u32 word;

	words[0] = words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	if (sk->family == AF_INET) {
		word = sk->dst_ip4;
		barrier_var(word);
		words[3] = word;
		return;
	}
	word = sk->dst_ip6[0];
	barrier_var(word);
	words[0] = word;
	word = sk->dst_ip6[1];
	barrier_var(word);
	words[1] = word;
	word = sk->dst_ip6[2];
	barrier_var(word);
	words[2] = word;
	word = sk->dst_ip6[3];
	barrier_var(word);
	words[3] = word;
}

static __always_inline bool nn_same_words(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Is a UDP socket connected, and to another than its calls have named last? */
static __always_inline bool nn_called_another(const struct nn_socket *s,
					      struct bpf_sock *sk)
{
	__u32 peer[4], connected[4];

	if (sk->state != TCP_ESTABLISHED)
		return false;
	if (!s->peer_known || s->service_port != bpf_ntohs(sk->dst_port))
		return true;
	__builtin_memcpy(peer, s->peer, sizeof(peer));
	nn_connected_to(sk, connected);
	if (sk->family == AF_INET)
		return peer[3] != connected[3];
	return !nn_same_words(peer, connected);
}

/* Is a UDP packet for whom its socket is connected to? Not inline: its stack is
 * not among those of the search then. */
static __noinline int nn_packet_meets(struct __sk_buff *skb,
				      struct bpf_sock *sk)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 to[4] = {}, connected[4];
	__be16 port = 0;

	if (bpf_skb_load_bytes(skb, nn_packet_ip_header(skb, v6 ? 40 : 20) + 2,
			       &port, sizeof(port)) ||
	    port != (__be16)sk->dst_port)
		return 0;
	nn_connected_to(sk, connected);
	if (!v6)
		return !bpf_skb_load_bytes(skb, 16, to, sizeof(to[0])) &&
		       to[0] == connected[3];
	return !bpf_skb_load_bytes(skb, 24, to, sizeof(to)) &&
	       nn_same_words(to, connected);
}

/* A packet of such a socket. Behind the machine's own NAT it has another
 * address: then whom a call has named last counts. */
static __noinline int nn_packet_connected(struct __sk_buff *skb,
					  struct bpf_sock *sk,
					  struct nn_socket *s)
{
	__u32 words[4];

	if (!s || !nn_packet_meets(skb, sk))
		return 0;
	nn_connected_to(sk, words);
	return nn_peer_called(s, words, bpf_ntohs(sk->dst_port), IPPROTO_UDP);
}

/* A packet of a socket with state, before it is asked what holds for it. */
static __always_inline void nn_packet_destined(struct __sk_buff *skb,
					       struct bpf_sock *sk,
					       struct nn_socket *s)
{
	struct nn_policy *p;

	if (s->protocol == IPPROTO_TCP)
		return;
	p = nn_policy();
	if (!p || !p->destinations)
		return;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol == IPPROTO_TCP || sk->protocol == IPPROTO_MPTCP)
		return;
	if (sk->protocol != IPPROTO_UDP || sk->type == SOCK_RAW)
		nn_packet_peer(skb, s);
	else if (nn_called_another(s, sk))
		nn_packet_connected(skb, sk, s);
}

#endif
