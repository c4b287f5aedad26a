/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What a node receives: its limit, and what was counted in spans of time. */
#ifndef NETNICE_SHAPE_SPAN_H
#define NETNICE_SHAPE_SPAN_H

#include "queued.h"
#include "shape_maps.h"

static __always_inline struct nn_inflow *nn_inflow(__u32 node)
{
	return bpf_map_lookup_elem(&inflows, &node);
}

/* The ceiling of a node on what comes in, which has no clock that counts. */
static __always_inline __u64 nn_ceiling_down(struct nn_node *n, __u32 node)
{
	struct nn_inflow *f;

	if (!(n->flags & NN_NODE_LAPSES))
		return nn_ceiling(n, node, NN_DOWN);
	f = nn_inflow(node);
	return nn_ceiling_after(n, NN_DOWN, f ? f->bytes : 0);
}

/* The ceiling of a node on what comes in, alone or with what is sent; 0 = none.
 */
static __always_inline __u64 nn_inbound_rate(const struct nn_hop *hop)
{
	struct nn_node *n = nn_node_get(hop->node, hop->generation);
	__u64 down;

	if (!n)
		return 0;
	down = nn_ceiling_down(n, hop->node);
	if (n->flags & NN_NODE_METER_OFF)
		return down;
	return nn_lower(down, nn_ceiling(n, hop->node, NN_TOTAL));
}

static __always_inline __u32 nn_span_now(__u64 now_ns)
{
	return now_ns / NN_SPAN_NS;
}

static __always_inline struct nn_span_count *nn_span_count(struct nn_inflow *f,
							   __u32 span)
{
	struct nn_span_count *c = &f->recent[span & (NN_RECENT - 1)];

	if (c->span != span) {
		c->span = span;
		c->receivers = 0;
		c->opened = 0;
		c->weight = 0;
		c->promised = 0;
		c->modest = 0;
		c->bytes = 0;
		c->offered = 0;
		c->waited_us = 0;
	}
	return c;
}

#endif
