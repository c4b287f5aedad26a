/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A ceiling on what comes in has lapsed, and the user side has not given the
 * queue its new rate yet, or there is none that could. Packets then pass that
 * queue by, and those beyond the new ceiling are dropped.
 */
#ifndef NETNICE_SHAPE_LAPSE_H
#define NETNICE_SHAPE_LAPSE_H

#include "shape_left.h"

/* So far ahead of the ceiling packets may come, or so many of them. */
#define NN_LAPSED_AHEAD_NS    50000000ULL
#define NN_LAPSED_AHEAD_BYTES 65536ULL

/* Has a ceiling of the node on what comes in lapsed? Not static, for its stack
 * would come on top of the caller's. */
__noinline int nn_inbound_lapsed(__u32 node, __u32 generation)
{
	struct nn_node *n = nn_node_get(node, generation);
	struct nn_inflow *f;

	if (!n || !(n->flags & NN_NODE_LAPSES))
		return 0;
	f = nn_inflow(node);
	if (nn_lapsed_in(n, NN_DOWN, f ? f->bytes : 0))
		return 1;
	return !(n->flags & NN_NODE_METER_OFF) &&
	       nn_lapsed_in(n, NN_TOTAL, nn_clock_bytes(node, NN_TOTAL));
}

static __always_inline bool nn_inbound_any_lapsed(const struct nn_whose *path)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path->hops[i].node)
			break;
		if (nn_inbound_lapsed(path->hops[i].node,
				      path->hops[i].generation))
			return true;
	}
	return false;
}

/* Take what was received off a node's clock of both directions; 1: once more,
 * as nn_hop_turn, for which there is no room on the stack. */
__noinline int nn_lapsed_total_turn(__u32 node, __u64 rate, __u64 bytes,
				    __u32 calls)
{
	return nn_clock_pass(node, NN_TOTAL, rate, bytes, calls, false);
}

/* May a packet pass by the queue of a node, as far as that has lapsed? It is
 * counted then as one that has left the queue. Not static, as above. */
__noinline int nn_lapsed_passes(__u32 node, __u32 generation, __u64 bytes,
				__u32 segments)
{
	struct nn_hop hop = {.node = node, .generation = generation};
	__u64 ahead_ns = NN_LAPSED_AHEAD_NS, most_ns, now_ns, rate;
	struct nn_node *n;
	struct nn_inflow *f;

	if (!nn_inbound_lapsed(node, generation))
		return 1;
	n = nn_node_get(node, generation);
	f = nn_inflow(node);
	if (!n || !f)
		return 1;
	rate = nn_inbound_rate(&hop);
	if (rate) {
		now_ns = bpf_ktime_get_ns();
		nn_later(&ahead_ns,
			 NN_LAPSED_AHEAD_BYTES * NN_NSEC_PER_SEC / rate);
		nn_later(&f->lapsed_ns, now_ns);
		/* a debt at a lower rate than now */
		most_ns = now_ns + ahead_ns +
			  NN_LAPSED_AHEAD_BYTES * NN_NSEC_PER_SEC / rate;
		if (f->lapsed_ns > most_ns)
			f->lapsed_ns = most_ns;
		if (f->lapsed_ns > now_ns + ahead_ns)
			return 0;
		__sync_fetch_and_add(&f->lapsed_ns,
				     bytes * NN_NSEC_PER_SEC / rate);
	}
	if (!(n->flags & NN_NODE_METER_OFF)) {
		rate = nn_ceiling(n, node, NN_TOTAL);
		for (__u32 i = 0; i <= NN_ADVANCE_CALLS; i++)
			if (!nn_lapsed_total_turn(node, rate, bytes, i))
				break;
	}
	nn_inflow_left(f, bytes, segments);
	return 1;
}

static __always_inline bool nn_lapsed_all_pass(const struct nn_whose *path,
					       __u64 bytes, __u32 segments)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path->hops[i].node)
			break;
		if (!nn_lapsed_passes(path->hops[i].node,
				      path->hops[i].generation, bytes,
				      segments))
			return false;
	}
	return true;
}

#endif
