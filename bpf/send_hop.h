/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds a packet's position on its path in the egress queue: its
 * child at the node, and its lane.
 */
#ifndef NETNICE_SEND_HOP_H
#define NETNICE_SEND_HOP_H

#include "charge.h"
#include "identity.h"
#include "send_types.h"

static __always_inline bool nn_lane_empty(const struct nn_lane *l, __u64 now_ns)
{
	return (__s64)(l->came_bytes - l->left_bytes) <= 0 ||
	       now_ns > l->used_ns + NN_LANE_EMPTY_NS;
}

/* The lane of a child, which is given one if there is a free one and take says
 * so; 0 = that of those without. Not static: the verifier then looks at it
 * once. */
__noinline __u32 nn_lane_of(struct nn_outflow *f, __u64 child, __u64 now_ns,
			    __u32 take)
{
	__u32 unused = 0;

	if (!f)
		return 0;
	for (__u32 i = 1; i < NN_LANES; i++) {
		struct nn_lane *l = &f->lane[i];

		if (l->child == child)
			return i;
		if (!unused && nn_lane_empty(l, now_ns))
			unused = i;
	}
	if (!take || !unused || unused >= NN_LANES)
		return 0;
	f->lane[unused].child = child;
	f->lane[unused].came_bytes = 0;
	f->lane[unused].left_bytes = 0;
	f->lane[unused].paid_ns = 0;
	return unused;
}

static __always_inline struct nn_lane *nn_lane(struct nn_outflow *f, __u32 i)
{
	return &f->lane[i & (NN_LANES - 1)];
}

/* A hop of the path: its node, and who a packet is of there: the program, or
 * the node that comes before. */
struct nn_send_hop {
	__u64 child;
	__u64 lane;	  /* lane's owner: the guaranteed node if any */
	__u64 guarantee;  /* at each further limit, bytes/s */
	__u32 guaranteed; /* the node that has it */
	__u32 weight;
	__u32 node; /* 0 = there is none, or it has gone */
	__u32 only; /* the node that it is of alone, 0 = of all */
};

__noinline int nn_send_hop(const struct nn_socket *s, __u32 hop,
			   struct nn_send_hop *at)
{
	__u64 guarantee;

	if (!s || !at)
		return 0;
	at->child = s->child;
	at->lane = 0;
	at->weight = NN_WEIGHT_DEFAULT;
	at->guarantee = 0;
	at->node = 0;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 node = s->path[i].node;
		struct nn_node *n;

		if (!node)
			break;
		n = nn_node_get(node, s->path[i].generation);
		if (i == hop) {
			at->node = n ? node : 0;
			if (!at->lane || (at->only && at->only != node))
				at->lane = at->child;
			break;
		}
		if (!n)
			continue;
		guarantee = n->limits[NN_OWNER_ADMIN][NN_UP].min_bytes_per_sec;
		if (nn_part_of_program(n, guarantee))
			continue;
		at->child = nn_child_node(node, n->generation);
		at->weight = n->weight;
		if (guarantee) {
			at->guarantee = guarantee;
			at->guaranteed = node;
			at->only = n->scope_id;
			at->lane = at->child;
		}
	}
	return 0;
}

#endif
