/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file measures the queue of an ingress limit. A packet carries its class,
 * its place and its time of arrival through the queue. When it leaves, all
 * packets before it are gone: they left, or were dropped, also if their sockets
 * are closed.
 */
#ifndef NETNICE_SHAPE_QUEUE_H
#define NETNICE_SHAPE_QUEUE_H

#include "shape_span.h"

#define NN_HELD_MOST_US	  1000000U
#define NN_QUEUE_EMPTY_NS 2000000000ULL

/* The limit of a program's waiting datagrams: 50 ms of the part, and two
 * packets. */
#define NN_DATAGRAM_BURST_NS	50000000ULL
#define NN_DATAGRAM_BURST_BYTES 3000

/* A queue that holds more than 25 ms of its rate, and than two bursts, is long.
 * The datapath then charges datagrams more, for NN_LONG_TRIES spans. If the
 * queue has not shrunk by an eighth, others keep it long, and the surcharge
 * rests for NN_LONG_RESTS spans. */
#define NN_LONG_US    25000U
#define NN_LONG_BYTES (2 * NN_DATAGRAM_BURST_BYTES)
#define NN_LONG_TRIES 8
#define NN_LONG_RESTS 32

/* nn_joins_queue counts a packet that is about to enter the queue. If none has
 * left for a while, the queue is empty: those that should be in it were
 * dropped. */
static __always_inline void nn_joins_queue(struct nn_inflow *f, __u64 bytes)
{
	__u64 now_ns = bpf_ktime_get_ns();

	if (now_ns > f->left_ns + NN_QUEUE_EMPTY_NS) {
		f->gone_bytes = f->came_bytes;
		f->left_ns = now_ns;
	}
	__sync_fetch_and_add(&f->came_bytes, bytes);
}

/* nn_queued_note writes into a packet that joined a queue its place in it. */
static __always_inline void nn_queued_note(struct __sk_buff *skb, __u32 node,
					   const struct nn_inflow *f)
{
	skb->cb[NN_QUEUED_CLASS] = NN_SHAPE_HANDLE | node;
	skb->cb[NN_QUEUED_AT] = f->came_bytes;
	skb->cb[NN_QUEUED_US] = bpf_ktime_get_ns() / 1000;
}

/* The node for which a packet has waited, 0 = none. */
static __always_inline __u32 nn_queued_node(const struct __sk_buff *skb)
{
	__u32 class = skb->cb[NN_QUEUED_CLASS];

	return (class & 0xffff0000) == NN_SHAPE_HANDLE ? class & 0xffff : 0;
}

/* nn_queued_left reads that from a packet that has left a queue. */
static __always_inline void nn_queued_left(const struct __sk_buff *skb)
{
	__u32 node = nn_queued_node(skb);
	__u64 now_ns = bpf_ktime_get_ns(), gone_bytes;
	struct nn_span_count *c;
	struct nn_inflow *f;
	__s32 further, ahead, us;

	f = nn_inflow(node);
	if (!f)
		return;
	gone_bytes = f->gone_bytes;
	further = skb->cb[NN_QUEUED_AT] - (__u32)gone_bytes;
	ahead = skb->cb[NN_QUEUED_AT] - (__u32)f->came_bytes;
	/* Not ahead: the note is of this node, not of one that had its number.
	 * No addition: two CPUs could pass came_bytes by it. */
	if (further > 0 && ahead <= 0)
		f->gone_bytes = gone_bytes + further;
	f->left_ns = now_ns;
	us = (__u32)(now_ns / 1000) - skb->cb[NN_QUEUED_US];
	if (us <= 0) /* another CPU's clock may be a little behind */
		us = 1;
	c = nn_span_count(f, nn_span_now(now_ns));
	if (!c->waited_us || (__u32)us < c->waited_us)
		c->waited_us = us;
}

/* nn_inflow_queued returns the bytes in the queue, and those that were dropped
 * since the last packet that left it came: under a flood more than it has room
 * for. */
static __always_inline __u64 nn_inflow_queued(const struct nn_inflow *f)
{
	__u64 came = f->came_bytes, gone = f->gone_bytes;

	return came > gone ? came - gone : 0;
}

/* nn_reached returns the bytes per span of time from which on a limit counts as
 * reached: a little less than the full limit. */
static __always_inline __u64 nn_reached(__u64 rate)
{
	__u64 full = rate * NN_SPAN_NS / NN_NSEC_PER_SEC;

	return full - full / 32;
}

/* No queue, and less came in the last span than the limit lets through. */
static __always_inline bool nn_has_room(const struct nn_inflow *f, __u64 rate,
					__u32 span)
{
	const struct nn_span_count *last =
		&f->recent[(span - 1) & (NN_RECENT - 1)];
	const struct nn_span_count *former =
		&f->recent[(span - 2) & (NN_RECENT - 1)];

	return last->span == span - 1 && former->span == span - 2 &&
	       last->bytes < nn_reached(rate) &&
	       nn_inflow_queued(f) < rate / 500;
}

/* How long a limit holds what comes in, in us; 0 = it has room: no queue, and
 * less came than it lets through, for two spans: with the first it may begin.
 */
static __always_inline __u32 nn_held_us(const struct nn_inflow *f, __u64 rate,
					__u32 span)
{
	const struct nn_span_count *former =
		&f->recent[(span - 2) & (NN_RECENT - 1)];
	__u64 us;

	if (nn_has_room(f, rate, span) && former->bytes < nn_reached(rate))
		return 0;
	us = nn_inflow_queued(f) * 1000 / (rate / 1000 + 1);
	return us ? nn_least(us, NN_HELD_MOST_US) : 1;
}

/* nn_long_look tells, once in a span, whether the queue is long: whether all
 * that left it in the last span had to wait for so long. */
static __always_inline void nn_long_look(struct nn_inflow *f, __u64 rate,
					 __u32 span)
{
	const struct nn_span_count *last =
		&f->recent[(span - 1) & (NN_RECENT - 1)];
	__u64 us = NN_LONG_BYTES * 1000000ULL / (rate + 1);
	__u32 since = span - f->long_span, tries = NN_LONG_TRIES;

	nn_later(&us, NN_LONG_US);
	if (last->span != span - 1 || last->waited_us <= us) {
		f->long_span = 0;
		f->long_rests = 0;
		return;
	}
	/* The effect shows as late as the queue is long, and is compared with
	 * the longest wait of the try. */
	tries += f->long_us / (NN_SPAN_NS / 1000);
	if (f->long_span && since < (f->long_rests ? NN_LONG_RESTS : tries)) {
		if (!f->long_rests && last->waited_us > f->long_us)
			f->long_us = last->waited_us;
		return;
	}
	f->long_rests = f->long_span && !f->long_rests &&
			last->waited_us > f->long_us - f->long_us / 8;
	f->long_span = span;
	f->long_us = last->waited_us;
}

/* nn_queue_is_long tells whether the queue has to shrink. Programs that
 * together get a little more than the limit would otherwise fill it up to its
 * room, and it would stay full. */
static __always_inline bool nn_queue_is_long(const struct nn_inflow *f)
{
	return f->long_span && !f->long_rests;
}

#endif
