/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a program sends to this machine is free unless its limit says otherwise.
 * The kernel answers some of it: a datagram for which there is no socket, a
 * ping, a SYN. The answer goes to the packet's source address, and no socket of
 * the program's sends it. Over IPv6 any program may send from an address
 * elsewhere (IPV6_FREEBIND). So what the answer may be is charged to whoever
 * draws it.
 */
#ifndef NETNICE_ANSWERED_H
#define NETNICE_ANSWERED_H

#include "datagram.h"

#define NN_ANSWER_HEADERS 48   /* IPv6 and ICMPv6 */
#define NN_ANSWER_MAX	  1280 /* an answer with a part of the datagram in it */
/* A SYN-ACK is sent again five times (tcp_synack_retries). */
#define NN_SYN_ANSWERS (6 * 80)

/* A UDP socket here receives the datagram, so the kernel does not answer. Which
 * device the kernel takes a packet to oneself to come by is not known here, so
 * sockets that are bound to one do not count. */
static __always_inline bool nn_received_here(struct __sk_buff *skb,
					     struct bpf_sock_tuple *t,
					     __u32 size)
{
	struct bpf_sock *sk =
		bpf_sk_lookup_udp(skb, t, size, BPF_F_CURRENT_NETNS, 0);
	bool received;

	if (!sk)
		return false;
	received = !sk->bound_dev_if;
	bpf_sk_release(sk);
	return received;
}

/* The bytes that the kernel's answers to a packet on the loopback device may
 * send elsewhere; 0 = none. An answer to a loopback address, or to the address
 * that the packet goes to, stays here. */
static __noinline __u64 nn_answered_bytes(struct __sk_buff *skb)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 headers = v6 ? 40 : 20, segments = nn_packet_segments(skb);
	struct bpf_sock_tuple t = {};
	__u8 protocol = 0, flags = 0, first = 0;
	__u64 bytes;

	if (v6) {
		if (bpf_skb_load_bytes(skb, 6, &protocol, 1) ||
		    bpf_skb_load_bytes(skb, 8, &t.ipv6.saddr, 32))
			return 0;
		if (t.ipv6.saddr[0] == t.ipv6.daddr[0] &&
		    t.ipv6.saddr[1] == t.ipv6.daddr[1] &&
		    t.ipv6.saddr[2] == t.ipv6.daddr[2] &&
		    t.ipv6.saddr[3] == t.ipv6.daddr[3])
			return 0;
		if (!t.ipv6.saddr[0] && !t.ipv6.saddr[1] && !t.ipv6.saddr[2] &&
		    t.ipv6.saddr[3] == bpf_htonl(1))
			return 0;
	} else {
		if (bpf_skb_load_bytes(skb, 0, &first, 1) ||
		    bpf_skb_load_bytes(skb, 9, &protocol, 1) ||
		    bpf_skb_load_bytes(skb, 12, &t.ipv4.saddr, 8))
			return 0;
		if (t.ipv4.saddr == t.ipv4.daddr ||
		    (t.ipv4.saddr & bpf_htonl(0xff000000)) ==
			    bpf_htonl(0x7f000000))
			return 0;
		headers = (first & 0xf) * 4;
	}
	if (protocol == IPPROTO_TCP) {
		/* Other segments belong to a connection, which has a peer. */
		if (bpf_skb_load_bytes(skb, headers + 13, &flags, 1))
			return 0;
		return (flags & 0x12) == 0x02 ? NN_SYN_ANSWERS : 0;
	}
	bytes = skb->len + (__u64)segments * NN_ANSWER_HEADERS;
	if (protocol != IPPROTO_UDP)
		return bytes;
	/* Options may draw an answer though there is a socket. Over IPv6 that
	 * is not looked for: a socket may be closed before it receives, or have
	 * the kernel answer (UDP_ENCAP). Over IPv4 only privileged programs
	 * send from elsewhere. */
	if (!v6 && headers == 20 &&
	    !bpf_skb_load_bytes(skb, 20, &t.ipv4.sport, 4) &&
	    nn_received_here(skb, &t, sizeof(t.ipv4)))
		return 0;
	if (bytes > (__u64)segments * NN_ANSWER_MAX)
		bytes = (__u64)segments * NN_ANSWER_MAX;
	return bytes;
}

#endif
