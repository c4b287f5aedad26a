/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* This file counts and charges what leaves a node's queue of received packets.
 */
#ifndef NETNICE_SHAPE_LEFT_H
#define NETNICE_SHAPE_LEFT_H

#include "shape_span.h"

/* nn_total_charge charges ingress to a limit on both directions. It returns
 * false if the packet is too far ahead of that limit's clock. */
static __always_inline bool nn_total_charge(const struct nn_hop *hop,
					    struct nn_inflow *f, __u64 bytes,
					    __u32 segments, bool aside)
{
	struct nn_node *n = nn_node_get(hop->node, hop->generation);
	__u64 now_ns = bpf_ktime_get_ns();
	struct nn_transmit *x;
	__u32 zero = 0;

	if (!n || n->flags & NN_NODE_METER_OFF ||
	    !nn_ceiling(n, hop->node, NN_TOTAL))
		return true;
	if (!aside && !nn_queued_leaves(&f->paid_ns, now_ns, 0, 0)) {
		__sync_fetch_and_add(&f->policed, 1);
		return false;
	}
	x = bpf_map_lookup_elem(&scratch, &zero);
	if (!x)
		return true;
	__builtin_memset(x, 0, sizeof(*x));
	x->now_ns = now_ns;
	x->wire_bytes = bytes;
	x->segments = nn_counted(segments);
	x->limit = NN_UNLIMITED;
	x->weight = NN_WEIGHT_DEFAULT;
	x->mode = NN_CHARGE;
	x->empty = 1;
	x->apart = NN_APART_INFLOW;
	nn_queued_charge(x, n, hop->node, NN_TOTAL);
	f->paid_ns = x->next_ns;
	return true;
}

static __always_inline void nn_inflow_left(struct nn_inflow *f, __u64 bytes,
					   __u32 segments)
{
	struct nn_span_count *c;

	__sync_fetch_and_add(&f->bytes, bytes);
	__sync_fetch_and_add(&f->packets, segments);
	__sync_fetch_and_add(&f->link_bytes, bytes + ETH_HLEN * segments);
	c = nn_span_count(f, nn_span_now(bpf_ktime_get_ns()));
	__sync_fetch_and_add(&c->bytes, bytes);
}

/* False: it is dropped. */
static __always_inline bool nn_left_queue(const struct nn_hop *hop, __u64 bytes,
					  __u32 segments)
{
	struct nn_inflow *f = nn_inflow(hop->node);

	if (!f)
		return true;
	if (!nn_total_charge(hop, f, bytes, segments, false))
		return false;
	nn_inflow_left(f, bytes, segments);
	return true;
}

#endif
