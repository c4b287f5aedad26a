/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file divides a limit on TCP ingress. Programs (and nodes below the node)
 * share it by weight and guarantee, whatever number of connections each has.
 * The connections of a program share its part equally. They are counted as they
 * receive, in spans of 0.25 s.
 */
#ifndef NETNICE_SHAPE_SHARE_H
#define NETNICE_SHAPE_SHARE_H

#include "shape_queue.h"

#define NN_SCALE_ONE 256U

/* nn_share_of is the reason for which a socket asks for its share. */
enum nn_share_of {
	NN_SHARE_LOOK,	  /* it is counted already, or nothing came */
	NN_SHARE_COUNTED, /* something came: it is a receiver */
	NN_SHARE_OPENS,	  /* a peer asks for a connection */
};

/* nn_receivers returns the number of recent receivers: the most in this span of
 * time or in one of the last two. */
static __always_inline __u32 nn_receivers(const struct nn_inflow *f, __u32 span)
{
	__u32 most = 1;

	for (__u32 i = 0; i < NN_RECENT; i++) {
		const struct nn_span_count *c = &f->recent[i];

		if (span - c->span < NN_RECENT - 1 && c->receivers > most)
			most = c->receivers;
	}
	return most;
}

/* nn_opening returns the number of recent connection requests. A peer that asks
 * may never send anything (a flood of SYNs), so requests take nothing from the
 * receivers. */
static __always_inline __u32 nn_opening(const struct nn_inflow *f, __u32 span)
{
	__u32 sum = 0;

	for (__u32 i = 0; i < NN_RECENT; i++) {
		const struct nn_span_count *c = &f->recent[i];

		if (span - c->span < NN_RECENT - 1)
			sum += c->opened;
	}
	return sum;
}

/* Once in a span of time: not every receiver takes its share. While the limit
 * is not reached, and no more comes than before (connections that begin are no
 * reason), the shares grow, up to all of it for each. With a queue they shrink
 * again. */
static __always_inline void nn_share_adapt(struct nn_inflow *f, __u64 rate,
					   __u32 span)
{
	__u32 before = f->scale_span, most = nn_receivers(f, span);
	const struct nn_span_count *last =
		&f->recent[(span - 1) & (NN_RECENT - 1)];
	const struct nn_span_count *former =
		&f->recent[(span - 2) & (NN_RECENT - 1)];
	__u64 scale = f->share_scale;

	/* another CPU may have looked at a later span */
	if ((__s32)(span - before) <= 0 ||
	    !__sync_bool_compare_and_swap(&f->scale_span, before, span))
		return;
	if (nn_inflow_queued(f) > rate / 66)
		scale -= (scale - NN_SCALE_ONE) / 2;
	else if (nn_has_room(f, rate, span) &&
		 last->bytes < former->bytes + former->bytes / 16)
		scale += scale / 8;
	if (scale > most * NN_SCALE_ONE)
		scale = most * NN_SCALE_ONE;
	if (scale < NN_SCALE_ONE)
		scale = NN_SCALE_ONE;
	f->share_scale = scale;
	nn_long_look(f, rate, span);
}

/* --- programs share a limit, and the sockets of each its part --- */

/* nn_share_ask describes the child of a node that asks for a share of the
 * node's limit. */
struct nn_share_ask {
	__u64 child;
	__u64 bytes; /* received since it was counted last */
	__u64 min;   /* guaranteed to it, bytes/s */
	__u32 weight;
	__u32 span;
	__u32 of;      /* enum nn_share_of */
	__u32 held_us; /* answer: the longest that a limit on the path holds */
};

static const struct nn_sharer nn_sharer_fresh;

static __always_inline struct nn_sharer *nn_sharer(__u32 node, __u32 generation,
						   __u64 child)
{
	struct nn_sharer_key key = {
		.node = node, .generation = generation, .child = child};
	struct nn_sharer *k = bpf_map_lookup_elem(&sharers, &key);

	if (k)
		return k;
	bpf_map_update_elem(&sharers, &key, &nn_sharer_fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sharers, &key);
}

/* nn_wanted is the recent demand of the other children together: the most in
 * any of the last spans. */
struct nn_wanted {
	__u64 weight, promised, modest;
};

/* nn_wanted_by_others sums each span without this child's own counts. Else a
 * child that is below its share only in some spans, as its sender makes pauses,
 * would count as its own competitor. It would get half of the free rate, take
 * less than five eighths of that, and so on. */
static __always_inline void nn_wanted_by_others(const struct nn_inflow *f,
						const struct nn_sharer *k,
						__u32 span,
						struct nn_wanted *others)
{
	for (__u32 i = 0; i < NN_RECENT; i++) {
		const struct nn_span_count *c = &f->recent[i];
		const struct nn_sharer_count *own = &k->recent[i];
		struct nn_wanted w = {.weight = c->weight,
				      .promised = c->promised,
				      .modest = c->modest};

		if (span - c->span >= NN_RECENT - 1)
			continue;
		if (own->span == c->span) {
			w.weight -= nn_least(w.weight, own->weight);
			w.promised -= nn_least(w.promised, own->promised);
			w.modest -= nn_least(w.modest, own->modest);
		}
		nn_later(&others->weight, w.weight);
		nn_later(&others->promised, w.promised);
		nn_later(&others->modest, w.modest);
	}
}

/* nn_child_part returns the child's part of the limit, bytes/s. It is the
 * child's guarantee plus, by weight, its share of the rest among the children
 * that need more. Children that take less than their part have that amount set
 * aside, and a quarter more; the others have the rest. */
static __always_inline __u64 nn_child_part(const struct nn_inflow *f,
					   const struct nn_sharer *k,
					   const struct nn_share_ask *a,
					   __u64 rate)
{
	struct nn_wanted others = {};
	__u64 rest;

	nn_wanted_by_others(f, k, a->span, &others);
	rest = rate - nn_least(others.promised + a->min + others.modest,
			       rate - rate / 20);
	return a->min + rest * a->weight / (others.weight + a->weight);
}

/* The child is counted in a span, once. It is modest if it used less than five
 * eighths of its part in the last two spans. */
static __always_inline void nn_child_counts(struct nn_span_count *c,
					    struct nn_sharer *k,
					    const struct nn_share_ask *a,
					    __u64 part)
{
	struct nn_sharer_count *own = &k->recent[a->span & (NN_RECENT - 1)];
	__u64 used = 0;
	bool known = false;

	for (__u32 i = 1; i < NN_RECENT - 1; i++) {
		const struct nn_sharer_count *before =
			&k->recent[(a->span - i) & (NN_RECENT - 1)];

		if (before->span != a->span - i)
			continue;
		known = true;
		nn_later(&used, before->bytes);
	}
	used *= NN_NSEC_PER_SEC / NN_SPAN_NS;
	if (!known || used >= part / 8 * 5) {
		own->weight = a->weight;
		own->promised = a->min;
		__sync_fetch_and_add(&c->weight, own->weight);
		__sync_fetch_and_add(&c->promised, own->promised);
	} else {
		own->modest = used + used / 4;
		__sync_fetch_and_add(&c->modest, own->modest);
	}
}

/* A socket of the child is counted in a span: with the first of them the child
 * is. */
static __always_inline void nn_child_counted(struct nn_span_count *c,
					     struct nn_sharer *k,
					     const struct nn_share_ask *a,
					     __u64 part)
{
	struct nn_sharer_count *own = &k->recent[a->span & (NN_RECENT - 1)];

	__sync_fetch_and_add(&own->bytes, a->bytes);
	if (!__sync_fetch_and_add(&own->receivers, 1))
		nn_child_counts(c, k, a, part);
}

/* nn_child_receivers is nn_receivers for one child. */
static __always_inline __u32 nn_child_receivers(const struct nn_sharer *k,
						__u32 span)
{
	__u32 most = 1;

	for (__u32 i = 0; i < NN_RECENT; i++) {
		const struct nn_sharer_count *c = &k->recent[i];

		if (span - c->span < NN_RECENT - 1 && c->receivers > most)
			most = c->receivers;
	}
	return most;
}

/* nn_divided_rate returns the rate that a limit divides among receivers: all of
 * an ingress limit, or what its queue has of that or of a total limit
 * (queue_rates); 0 = the node has neither. */
static __always_inline __u64 nn_divided_rate(const struct nn_hop *hop)
{
	__u64 rate = nn_inbound_rate(hop), *due;

	due = rate ? bpf_map_lookup_elem(&queue_rates, &hop->node) : NULL;
	return due ? nn_least(rate, *due ? *due : 1) : rate;
}

/* nn_sharer_span returns the child's counts for this span. */
static __always_inline struct nn_sharer_count *nn_sharer_span(
	struct nn_sharer *k, __u32 span)
{
	struct nn_sharer_count *own = &k->recent[span & (NN_RECENT - 1)];

	if (own->span != span) {
		own->span = span;
		own->receivers = 0;
		own->bytes = 0;
		own->weight = 0;
		own->promised = 0;
		own->modest = 0;
	}
	return own;
}

/* A socket's share of one limit, in bytes/s; 0 without one. Not static: the
 * verifier then looks at it once, not once for each hop. */
__noinline __u64 nn_node_share(struct nn_share_ask *a, __u32 node,
			       __u32 generation)
{
	struct nn_hop hop = {.node = node, .generation = generation};
	__u64 rate = nn_divided_rate(&hop), share;
	__u32 held_us;
	struct nn_span_count *c;
	struct nn_sharer *k;
	struct nn_inflow *f;

	if (!rate || !a)
		return 0;
	f = nn_inflow(node);
	if (!f)
		return 0;
	c = nn_span_count(f, a->span);
	if (a->of == NN_SHARE_COUNTED)
		__sync_fetch_and_add(&c->receivers, 1);
	if (a->of == NN_SHARE_OPENS)
		__sync_fetch_and_add(&c->opened, 1);
	nn_share_adapt(f, rate, a->span);
	held_us = nn_held_us(f, rate, a->span);
	if (held_us > a->held_us)
		a->held_us = held_us;
	k = a->of == NN_SHARE_OPENS ? NULL
				    : nn_sharer(node, generation, a->child);
	if (!k) {
		share = rate /
			(nn_receivers(f, a->span) + nn_opening(f, a->span));
	} else {
		nn_sharer_span(k, a->span);
		share = nn_child_part(f, k, a, rate);
		if (a->of == NN_SHARE_COUNTED)
			nn_child_counted(c, k, a, share);
		share /= nn_child_receivers(k, a->span);
	}
	share = share * f->share_scale / NN_SCALE_ONE;
	if (share > rate)
		share = rate;
	return share ? share : 1;
}

/* nn_inbound_share returns the least of a socket's shares of the limits on its
 * path. bytes is the amount received since it was counted last. held_us may be
 * NULL. */
static __always_inline __u64 nn_inbound_share(const struct nn_socket *s,
					      __u32 span, __u32 of, __u64 bytes,
					      __u32 *held_us)
{
	struct nn_share_ask a = {
		.child = s->child,
		.bytes = bytes,
		.weight = NN_WEIGHT_DEFAULT,
		.span = span,
		.of = of,
	};
	__u64 least = 0, share;

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_node *n;

		if (!s->path[i].node)
			break;
		share = nn_node_share(&a, s->path[i].node,
				      s->path[i].generation);
		if (share && (!least || share < least))
			least = share;
		n = nn_node_get(s->path[i].node, s->path[i].generation);
		if (!n || nn_part_of_program(n, 0))
			continue;
		/* a node with a guarantee also counts as a child of its own at
		 * the outer nodes */
		if (a.min && !nn_guaranteed_down(n))
			continue;
		a.min = nn_guaranteed_down(n);
		a.child = nn_child_node(s->path[i].node, s->path[i].generation);
		a.weight = n->weight;
	}
	if (held_us)
		*held_us = a.held_us;
	return least;
}

/* nn_inbound_share_asked is the same for a connection request, for which only
 * the listener's path is known. */
static __always_inline __u64 nn_inbound_share_asked(const struct nn_path *path,
						    __u32 span)
{
	struct nn_share_ask a = {.span = span, .of = NN_SHARE_OPENS};
	__u64 least = 0, share;

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path->hops[i].node)
			break;
		share = nn_node_share(&a, path->hops[i].node,
				      path->hops[i].generation);
		if (share && (!least || share < least))
			least = share;
	}
	return least;
}

#endif
