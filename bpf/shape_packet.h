/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file parses a received packet. Headers are read from the network header
 * on, so that the device's link header does not matter.
 */
#ifndef NETNICE_SHAPE_PACKET_H
#define NETNICE_SHAPE_PACKET_H

#include "frame.h"
#include "identity.h"
#include "shape_maps.h"

#define NN_EXTENSIONS 64 /* IPv6 headers before TCP or UDP */
#define NN_IP_OFFSET  0x1fff
#define NN_IP_MORE    0x2000
#define NN_TCP_FIN    0x01
#define NN_TCP_SYN    0x02
#define NN_TCP_RST    0x04

struct nn_packet {
	__u32 source[4]; /* IPv4: the first */
	__u32 destination[4];
	struct nn_ports ports;
	__u32 fragment_id;
	__u32 ip_bytes;
	__u16 offset; /* transport header, from the network header on */
	__u16 fragment_offset;
	__u8 protocol;
	__u8 v6;
	__u8 more;	       /* fragments follow */
	__u8 flags;	       /* TCP's */
	__u16 transport_bytes; /* of the transport header */
	__u8 chained; /* more than NN_EXTENSIONS headers come before it */
	__u8 pad;
};

struct nn_ipv4_header {
	__u8 version_words, tos;
	__be16 total, id, fragment;
	__u8 ttl, protocol;
	__be16 sum;
	__u32 source, destination;
};

static __always_inline bool nn_parse_v4(struct __sk_buff *skb,
					struct nn_packet *p)
{
	struct nn_ipv4_header h;
	__u16 fragment;

	if (!nn_load(skb, 0, &h, sizeof(h)))
		return false;
	fragment = bpf_ntohs(h.fragment);
	p->source[0] = h.source;
	p->destination[0] = h.destination;
	p->offset = (h.version_words & 15) * 4;
	p->protocol = h.protocol;
	p->fragment_offset = fragment & NN_IP_OFFSET;
	p->more = !!(fragment & NN_IP_MORE);
	p->fragment_id = h.id;
	p->ip_bytes = bpf_ntohs(h.total);
	return true;
}

struct nn_ipv6_header {
	__be32 flow;
	__be16 payload;
	__u8 next, hops;
	__u32 source[4], destination[4];
};

/* nn_extension_skip goes on to the next header; 1: it is an extension header,
 * too. Not static: the verifier then looks at it once, not once for each
 * header. */
__noinline int nn_extension_skip(struct __sk_buff *skb, struct nn_packet *p)
{
	struct nn_ipv6_extension e = {};

	if (!p || !nn_load(skb, p->offset, &e, sizeof(e)))
		return -1;
	if (p->protocol == IPPROTO_FRAGMENT) {
		p->fragment_offset = bpf_ntohs(e.fragment) >> 3;
		p->more = bpf_ntohs(e.fragment) & 1;
		p->fragment_id = e.id;
	}
	p->offset += nn_extension_bytes(&e, p->protocol);
	p->protocol = e.next;
	return !p->fragment_offset && nn_is_extension(e.next);
}

static __always_inline bool nn_parse_v6(struct __sk_buff *skb,
					struct nn_packet *p)
{
	struct nn_ipv6_header h;
	int more;

	if (!nn_load(skb, 0, &h, sizeof(h)))
		return false;
	for (int i = 0; i < 4; i++) {
		p->source[i] = h.source[i];
		p->destination[i] = h.destination[i];
	}
	p->v6 = 1;
	p->ip_bytes = sizeof(h) + bpf_ntohs(h.payload);
	p->offset = sizeof(h);
	p->protocol = h.next;
	if (!nn_is_extension(h.next))
		return true;
	for (int i = 0; i < NN_EXTENSIONS; i++) {
		more = nn_extension_skip(skb, p);
		if (more <= 0)
			return !more;
	}
	p->chained = 1;
	return false;
}

/* 1 if it is of a kind that a socket can be found for. Not static: the verifier
 * then looks at what follows once, not once for each kind of packet. */
__noinline int nn_parse(struct __sk_buff *skb, struct nn_packet *p)
{
	__u8 rest[10];

	if (!p)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!nn_parse_v4(skb, p))
			return false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!nn_parse_v6(skb, p))
			return false;
	} else {
		return false;
	}
	/* a later part of what has options behind the fragment header: its
	 * first part tells what it is, and whose */
	if (p->v6 && p->fragment_offset && nn_is_extension(p->protocol))
		p->protocol = IPPROTO_UDP;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return false;
	if (p->fragment_offset)
		return true;
	if (!nn_load(skb, p->offset, &p->ports, sizeof(p->ports)))
		return false;
	p->transport_bytes = 8;
	if (p->protocol == IPPROTO_TCP) {
		/* a first part may be too short for more than the ports */
		if (!nn_load(skb, p->offset + 4, rest, sizeof(rest)))
			return p->more;
		p->transport_bytes = (rest[8] >> 4) * 4;
		p->flags = rest[9];
	}
	return true;
}

/* IP bytes of a packet, or of all the segments that it stands for. */
static __always_inline __u64 nn_packet_bytes(const struct __sk_buff *skb,
					     const struct nn_packet *p,
					     __u32 link_header, __u32 *segments)
{
	__u64 bytes = skb->len - link_header;

	*segments = nn_packet_segments(skb);
	return bytes +
	       (__u64)(*segments - 1) * (p->offset + p->transport_bytes);
}

/* An acknowledgement, or the opening of a connection: they never wait. A FIN or
 * RST has to come after the data. */
static __always_inline bool nn_packet_empty(const struct nn_packet *p,
					    __u64 bytes)
{
	return p->protocol == IPPROTO_TCP && !p->fragment_offset &&
	       !(p->flags & (NN_TCP_FIN | NN_TCP_RST)) &&
	       bytes <= (__u64)p->offset + p->transport_bytes;
}

#endif
