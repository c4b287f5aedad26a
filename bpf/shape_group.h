/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles ingress for a group, by multicast or broadcast. The kernel
 * gives such a datagram to every socket that takes part, and a look-up finds
 * one of them. The datagram therefore has no single owner: the limits of the
 * host and the device apply, and everybody's limits for its source.
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
	if ((p->destination[0] & bpf_htonl(0xf0000000)) ==
		    bpf_htonl(0xe0000000) ||
	    p->destination[0] == 0xffffffff)
		return true;
	/* The broadcast address of a network, as most have it. Not by the frame
	 * alone: in such a one somebody near may send what is for one socket.
	 */
	return skb->pkt_type == PACKET_BROADCAST &&
	       (p->destination[0] & bpf_htonl(0xff)) == bpf_htonl(0xff);
}

/* Put a node on a packet's path, as hop n, if it is there. */
static __always_inline void nn_whose_add(struct nn_whose *path, __u32 *n,
					 __u32 node)
{
	struct nn_node *found = bpf_map_lookup_elem(&nodes, &node);
	struct nn_hop *hop = &path->hops[*n & (NN_PATH_MAX - 1)];

	if (!found)
		return;
	hop->node = node;
	hop->generation = found->generation;
	*n += 1;
}

/* nn_group_path returns whether a limit holds for the packet. The parameter
 * slot is that of nn_packet_path. */
static __always_inline bool nn_group_path(struct __sk_buff *skb,
					  struct nn_packet *p,
					  const struct nn_slot *slot,
					  struct nn_whose *path)
{
	struct nn_policy *policy = nn_policy();
	struct nn_link_key key = {};
	__u32 n = 0, *link;

	if (!policy)
		return false;
	if (policy->destinations & NN_DESTINATIONS_DOWN &&
	    nn_other_from(p, &path->hops[0]))
		n = 1;
	if (policy->kinds & 1 << NN_NODE_HOST)
		nn_whose_add(path, &n, policy->host_node);
	if (policy->kinds & 1 << NN_NODE_LINK) {
		key.netns = slot ? slot->netns : nn_packet_netns(skb);
		key.ifindex = slot ? slot->ifindex : skb->ifindex;
		link = bpf_map_lookup_elem(&links, &key);
		if (link)
			nn_whose_add(path, &n, *link);
	}
	return path->hops[0].node;
}

#endif
