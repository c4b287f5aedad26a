/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What comes in for a group: by multicast or broadcast. The kernel gives such a
 * datagram to every socket that takes part, whoever has it, and a look-up finds
 * one of them. So it is nobody's own: limits on the host hold for it, and
 * everybody's for where it comes from.
 */
#ifndef NETNICE_SHAPE_GROUP_H
#define NETNICE_SHAPE_GROUP_H

#include "shape_other.h"

#define PACKET_BROADCAST 1

static __always_inline bool nn_for_group(const struct __sk_buff *skb,
					 const struct nn_packet *p)
{
	if (p->protocol != IPPROTO_UDP)
		return false;
	if (p->v6)
		return (p->destination[0] & bpf_htonl(0xff000000)) ==
		       bpf_htonl(0xff000000);
	/* the broadcast address of a network is known by its frame alone */
	return skb->pkt_type == PACKET_BROADCAST ||
	       (p->destination[0] & bpf_htonl(0xf0000000)) ==
		       bpf_htonl(0xe0000000) ||
	       p->destination[0] == 0xffffffff;
}

/* Returns whether a limit holds for it. */
static __always_inline bool nn_group_path(struct nn_packet *p,
					  struct nn_whose *path)
{
	struct nn_policy *policy = nn_policy();
	struct nn_node *n = NULL;
	struct nn_hop *host = &path->hops[0];

	if (!policy)
		return false;
	if (policy->destinations & NN_DESTINATIONS_DOWN &&
	    nn_other_from(p, &path->hops[0]))
		host = &path->hops[1];
	if (policy->kinds & 1 << NN_NODE_HOST)
		n = bpf_map_lookup_elem(&nodes, &policy->host_node);
	if (n) {
		host->node = policy->host_node;
		host->generation = n->generation;
	}
	return path->hops[0].node;
}

#endif
