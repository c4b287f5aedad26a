/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a program sends to this machine is free unless its limit says otherwise.
 * The kernel answers some of it: a datagram for which there is no socket, a
 * ping, a SYN. The answer goes to the packet's source address, and no socket of
 * the program's sends it. Over IPv6 any program may send from an address
 * elsewhere (IPV6_FREEBIND), also to a group that this machine is in. A
 * tunnel's socket here takes a packet out of another, with an address of its
 * own, and a routing header may lead a packet on. So what may be sent because
 * of a packet is charged to whoever sends it.
 */
#ifndef NETNICE_ANSWERED_H
#define NETNICE_ANSWERED_H

#include "datagram.h"
#include "packet_peer.h"

#define NN_ANSWER_HEADERS  48	/* IPv6 and ICMPv6 */
#define NN_ANSWER_FRAGMENT 1452 /* at the usual MTU of 1500 */
#define NN_TUNNEL_HEADERS  28	/* a tunnel takes off IPv4 and UDP */
#define NN_ANSWER_MAX	   1280 /* an answer with a part of the datagram in it */
/* A SYN-ACK is sent again five times (tcp_synack_retries). */
#define NN_SYN_ANSWERS (6 * 80)
#define NN_RESET       60

enum nn_received {
	NN_RECEIVED_BY_NOBODY,
	NN_RECEIVED_BY_SOCKET,
	NN_RECEIVED_BY_TUNNEL,
};

/* Who receives a UDP datagram here. If it is a program, the kernel does not
 * answer. Which device the kernel takes a packet to oneself to come by is not
 * known here, so sockets that are bound to one do not count. */
static __always_inline enum nn_received nn_received_by(struct __sk_buff *skb,
						       struct bpf_sock_tuple *t,
						       __u32 size)
{
	struct bpf_sock *sk =
		bpf_sk_lookup_udp(skb, t, size, BPF_F_CURRENT_NETNS, 0);
	enum nn_received by = NN_RECEIVED_BY_NOBODY;

	if (!sk)
		return by;
	if (nn_unpacks(sk))
		by = NN_RECEIVED_BY_TUNNEL;
	else if (!sk->bound_dev_if)
		by = NN_RECEIVED_BY_SOCKET;
	bpf_sk_release(sk);
	return by;
}

/* It begins with a route, maybe behind options. */
static __always_inline bool nn_routed(struct __sk_buff *skb, __u8 protocol)
{
	if (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_DSTOPTS)
		bpf_skb_load_bytes(skb, 40, &protocol, 1);
	return protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS;
}

/* An answer with all of the packet in it, in fragments if need be. */
static __always_inline __u64 nn_answer_bytes(struct __sk_buff *skb)
{
	__u64 packets = nn_packet_segments(skb) + skb->len / NN_ANSWER_FRAGMENT;

	return skb->len + packets * NN_ANSWER_HEADERS;
}

/* The bytes that may be sent elsewhere because of a packet to this machine, or
 * to a group over IPv6, which it may be in; 0 = none. An answer to a loopback
 * address, or to the address that the packet goes to, stays here. Of what comes
 * for a group the kernel answers pings, among others, but no datagrams. */
static __noinline __u64 nn_answered_bytes(struct __sk_buff *skb, bool raw)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6), here = nn_here(skb);
	bool own, group = false;
	__u32 headers = v6 ? 40 : 20, segments = nn_packet_segments(skb);
	enum nn_received by = NN_RECEIVED_BY_NOBODY;
	__u8 protocol = 0, flags = 0, first = 0;
	struct bpf_sock_tuple t = {};
	__u64 bytes;

	if (!v6 && !here)
		return 0;
	if (v6) {
		if (bpf_skb_load_bytes(skb, 24, &first, 1))
			return 0;
		group = first == 0xff;
		if (!here && !group)
			return 0;
		if (bpf_skb_load_bytes(skb, 6, &protocol, 1) ||
		    bpf_skb_load_bytes(skb, 8, &t.ipv6.saddr, 32))
			return 0;
		own = nn_same_words(t.ipv6.saddr, t.ipv6.daddr) ||
		      (!t.ipv6.saddr[0] && !t.ipv6.saddr[1] &&
		       !t.ipv6.saddr[2] && t.ipv6.saddr[3] == bpf_htonl(1));
		if (nn_routed(skb, protocol))
			return nn_answer_bytes(skb);
	} else {
		if (bpf_skb_load_bytes(skb, 0, &first, 1) ||
		    bpf_skb_load_bytes(skb, 9, &protocol, 1) ||
		    bpf_skb_load_bytes(skb, 12, &t.ipv4.saddr, 8))
			return 0;
		own = t.ipv4.saddr == t.ipv4.daddr ||
		      (t.ipv4.saddr & bpf_htonl(0xff000000)) ==
			      bpf_htonl(0x7f000000);
		headers = (first & 0xf) * 4;
	}
	if (protocol == IPPROTO_TCP) {
		/* Other segments belong to a connection, which has a peer. */
		if (own || bpf_skb_load_bytes(skb, headers + 13, &flags, 1))
			return 0;
		if ((flags & 0x12) == 0x02)
			return NN_SYN_ANSWERS;
		return raw ? NN_RESET : 0;
	}
	/* A raw socket may send to a tunnel that has no port. */
	if (protocol != IPPROTO_UDP) {
		if (own && (!raw || nn_is_control(protocol)))
			return 0;
		if (group && protocol == NN_IPPROTO_UDPLITE)
			return 0;
		return nn_answer_bytes(skb);
	}
	if (v6 && !bpf_skb_load_bytes(skb, headers, &t.ipv6.sport, 4))
		by = nn_received_by(skb, &t, sizeof(t.ipv6));
	if (!v6 && !bpf_skb_load_bytes(skb, headers, &t.ipv4.sport, 4))
		by = nn_received_by(skb, &t, sizeof(t.ipv4));
	bytes = nn_answer_bytes(skb);
	if (by == NN_RECEIVED_BY_TUNNEL)
		return bytes - (__u64)segments * NN_TUNNEL_HEADERS;
	if (own || group)
		return 0;
	/* Over IPv4 only privileged programs send from elsewhere, though
	 * options may draw an answer. Over IPv6 a socket that is found may be
	 * closed before it receives. */
	if (!v6 && by == NN_RECEIVED_BY_SOCKET && headers == 20)
		return 0;
	if (bytes > (__u64)segments * NN_ANSWER_MAX)
		bytes = (__u64)segments * NN_ANSWER_MAX;
	return bytes;
}

#endif
