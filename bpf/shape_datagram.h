/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Datagrams that come in have no window that says how many may: where others
 * share the limit a program's get its part, and what is more is dropped before
 * the queue, so that neither waits for it there nor is dropped instead.
 */
#ifndef NETNICE_SHAPE_DATAGRAM_H
#define NETNICE_SHAPE_DATAGRAM_H

#include "shape_share.h"

/* While the queue is long, each datagram counts one eighth more. */
#define NN_LONG_QUEUE_EXTRA 8

/* The child for datagrams at a hop. It differs from that of the program that
 * also receives by TCP, or is another node. Guarantees are TCP's. */
static __always_inline void nn_datagram_ask(const struct nn_whose *w, __u32 hop,
					    struct nn_share_ask *a)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 node = w->hops[i].node;
		struct nn_node *n;

		if (!node || i == hop)
			break;
		n = nn_node_get(node, w->hops[i].generation);
		if (!n || nn_part_of_program(n, 0))
			continue;
		a->child = nn_child_node(node, w->hops[i].generation);
		a->weight = n->weight;
	}
	a->child |= NN_CHILD_DATAGRAMS;
}

static __always_inline struct nn_hop nn_whose_hop(const struct nn_whose *w,
						  __u32 hop)
{
	struct nn_hop none = {};

	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		if (i == hop)
			return w->hops[i];
	return none;
}

/* Is the datagram within its program's part of the limit of that hop? first: or
 * a part of it that was let in, and is paid for. Counts what comes, let in or
 * not. Not static: it has its own stack then. */
__noinline int nn_datagram_fits(const struct nn_whose *w, __u32 hop,
				__u64 bytes, __u32 first)
{
	__u64 now_ns = bpf_ktime_get_ns(), rate, part, burst_ns, most;
	struct nn_share_ask a = {
		.weight = NN_WEIGHT_DEFAULT,
		.span = nn_span_now(now_ns),
	};
	struct nn_sharer_count *own;
	__u32 before;
	struct nn_sharer *k;
	struct nn_inflow *f;
	struct nn_hop at;

	if (!w)
		return 1;
	a.child = w->child;
	nn_datagram_ask(w, hop, &a);
	at = nn_whose_hop(w, hop);
	rate = nn_divided_rate(&at);
	f = nn_inflow(at.node);
	if (!rate || !f)
		return 1;
	nn_share_adapt(f, rate, a.span);
	k = nn_sharer(at.node, at.generation, a.child);
	if (!k)
		return 1;
	own = nn_sharer_span(k, a.span);
	part = nn_child_part(f, k, &a, rate);
	__sync_fetch_and_add(&own->bytes, bytes);
	/* packets come on several CPUs at a time: it has one weight for all */
	before = k->span;
	if (before != a.span &&
	    __sync_bool_compare_and_swap(&k->span, before, a.span))
		nn_child_counts(nn_span_count(f, a.span), k, &a, part);
	part = part * f->share_scale / NN_SCALE_ONE;
	if (!part || part > rate) /* it is alone: its queue has a bound, too */
		part = rate;
	burst_ns = NN_DATAGRAM_BURST_BYTES * NN_NSEC_PER_SEC / part;
	nn_later(&burst_ns, NN_DATAGRAM_BURST_NS);
	/* a debt at a lower rate than now; a datagram has 64 KB at most, and
	 * may count more */
	most = now_ns + burst_ns +
	       (65536 + 65536 / NN_LONG_QUEUE_EXTRA) * NN_NSEC_PER_SEC / part;
	if (k->due_ns > most)
		k->due_ns = most;
	if (first && k->due_ns > now_ns + burst_ns)
		return 0;
	nn_later(&k->due_ns, now_ns);
	if (nn_queue_is_long(f))
		bytes += bytes / NN_LONG_QUEUE_EXTRA;
	k->due_ns += bytes * NN_NSEC_PER_SEC / part;
	return 1;
}

#endif
