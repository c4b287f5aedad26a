/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles ingress that is neither TCP nor UDP: ICMP, and packets for
 * raw sockets. It looks for no socket, because several sockets may receive the
 * packet, or none. Only limits that apply to everybody hold for it, by the host
 * that it is from, and no limit of a single subject.
 */
#ifndef NETNICE_SHAPE_OTHER_H
#define NETNICE_SHAPE_OTHER_H

#include "destination.h"
#include "packet_peer.h"
#include "shape_packet.h"

#define IPPROTO_IPIP	   4
#define IPPROTO_IPV6_IN_IP 41
#define IPPROTO_GRE	   47
#define IPPROTO_ESP	   50
#define IPPROTO_AH	   51
#define NN_ND_FIRST	   133 /* of ICMPv6: without these nobody is reached */
#define NN_ND_LAST	   137

/* A kernel tunnel decapsulates packets of these protocols: their inner packets
 * arrive once more. */
static __always_inline bool nn_is_outer(__u32 protocol)
{
	return protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6_IN_IP ||
	       protocol == IPPROTO_GRE || protocol == IPPROTO_ESP ||
	       protocol == IPPROTO_AH;
}

static __always_inline bool nn_is_discovery(struct __sk_buff *skb,
					    const struct nn_packet *p)
{
	__u8 type = 0;

	return p->v6 && p->protocol == NN_IPPROTO_ICMPV6 &&
	       (!nn_load(skb, p->offset, &type, sizeof(type)) ||
		(type >= NN_ND_FIRST && type <= NN_ND_LAST));
}

/* For this machine, not on its way through it. */
static __noinline int nn_is_local(struct __sk_buff *skb, struct nn_packet *p)
{
	struct bpf_fib_lookup to = {.ifindex = skb->ifindex};
	long found;

	if (!p)
		return 0;
	to.l4_protocol = p->protocol;
	to.tot_len = p->ip_bytes;
	if (p->v6) {
		to.family = AF_INET6;
		__builtin_memcpy(to.ipv6_src, p->source, sizeof(to.ipv6_src));
		__builtin_memcpy(to.ipv6_dst, p->destination,
				 sizeof(to.ipv6_dst));
	} else {
		to.family = AF_INET;
		to.ipv4_src = p->source[0];
		to.ipv4_dst = p->destination[0];
	}
	found = bpf_fib_lookup(skb, &to, sizeof(to), 0);
	return found == BPF_FIB_LKUP_RET_NOT_FWDED ||
	       found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* The node that everybody's limits have for what comes from there, none = 0. */
static __noinline int nn_other_from(struct nn_packet *p, struct nn_hop *found)
{
	struct nn_asked a = {.protocol = NN_PROTOCOL_OTHER};

	if (!p || !found)
		return 0;
	if (p->protocol == IPPROTO_UDP) { /* for a group */
		a.protocol = IPPROTO_UDP;
		a.service_port = bpf_ntohs(p->ports.destination);
	}
	if (p->v6)
		__builtin_memcpy(a.peer, p->source, sizeof(a.peer));
	else
		nn_peer_mapped((__u8 *)a.peer, p->source[0]);
	return nn_destination_find(&a, NN_BOOK_ADMIN, found);
}

/* The path of a packet that nn_parse takes for none of a socket's. Each part of
 * a fragmented one counts by itself. back: it was found to be for us before. */
static __always_inline bool nn_other_path(struct __sk_buff *skb,
					  struct nn_packet *p,
					  struct nn_whose *path, bool back)
{
	struct nn_policy *policy = nn_policy();

	if (!policy || !(policy->destinations & NN_DESTINATIONS_DOWN) ||
	    !p->ip_bytes || p->protocol == IPPROTO_TCP ||
	    p->protocol == IPPROTO_UDP || nn_is_outer(p->protocol))
		return false;
	if (!back && (nn_is_discovery(skb, p) || !nn_is_local(skb, p)))
		return false;
	p->fragment_offset = p->more = 0;
	return nn_other_from(p, &path->hops[0]);
}

#endif
