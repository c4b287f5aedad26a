/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The receive windows of limited TCP sockets. What a sender may send ahead
 * stands in the limit's queue: so much that the path and 10 ms of queue are
 * full, and no more, keeps that queue short and lets nothing be lost. Each
 * receiver gets its share of the limit; the receivers are counted as they
 * receive.
 */
#ifndef NETNICE_SHAPE_WINDOW_H
#define NETNICE_SHAPE_WINDOW_H

#include "shape_steer.h"

#define NN_RTT_UNKNOWN	  (~0U)
#define NN_RTT_GUESS_US	  20000U
#define NN_WINDOW_MAX	  (1U << 30)
#define NN_SCALE_ONE	  256U
#define NN_TCP_HEADER	  20U
#define NN_QUEUE_LEAST_NS 3000000ULL
#define NN_QUEUE_LARGE	  (96ULL << 10)
#define NN_SLACK	  16 /* part of the queue that may be off */

struct tcp_options_received {
	__u16 rcv_wscale : 4;
} __core;

/* As what a socket asks for its share. */
enum nn_share_of {
	NN_SHARE_LOOK,	  /* it is counted already, or nothing came */
	NN_SHARE_COUNTED, /* something came: it is a receiver */
	NN_SHARE_OPENS,	  /* somebody asks for a connection */
};

/* What is looked at of a TCP socket beside what kernel.h has. */
struct tcp_sock___receive {
	__u64 bytes_received;
	__u32 window_clamp;
	__u16 advmss;
	struct tcp_options_received rx_opt;
} __core;

/* Receivers of late: in this span of time, or in one of the last two. */
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

/* Connections that were asked for of late. Whoever asks may never send anything
 * (a flood of SYNs): it takes nothing from those that receive. */
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
	const struct nn_span_count *last = &f->recent[(span - 1) & 3];
	const struct nn_span_count *former = &f->recent[(span - 2) & 3];
	__u64 full = rate * NN_SPAN_NS / NN_NSEC_PER_SEC, queued;
	__u64 scale = f->share_scale, out;

	if (before == span ||
	    !__sync_bool_compare_and_swap(&f->scale_span, before, span))
		return;
	out = f->bytes - f->aside_bytes + f->dropped_bytes;
	queued = f->came_bytes > out ? f->came_bytes - out : 0;
	if (queued > rate / 66)
		scale -= (scale - NN_SCALE_ONE) / 2;
	else if (last->span == span - 1 && former->span == span - 2 &&
		 last->bytes < full - full / 32 && queued < rate / 500 &&
		 last->bytes < former->bytes + former->bytes / 16)
		scale += scale / 8;
	if (scale > most * NN_SCALE_ONE)
		scale = most * NN_SCALE_ONE;
	if (scale < NN_SCALE_ONE)
		scale = NN_SCALE_ONE;
	f->share_scale = scale;
}

/* A socket's share of one limit, in bytes/s; 0 without one. Not static: the
 * verifier then looks at it once, not once for each hop. */
__noinline __u64 nn_node_share(__u32 node, __u32 generation, __u32 of,
			       __u32 span)
{
	struct nn_hop hop = {.node = node, .generation = generation};
	__u64 rate = nn_inbound_rate(&hop), share;
	struct nn_span_count *c;
	struct nn_inflow *f;
	__u32 sharers;
	__u64 *due;

	if (!rate)
		return 0;
	f = nn_inflow(node);
	if (!f)
		return 0;
	due = bpf_map_lookup_elem(&dues, &node);
	if (due && *due < rate)
		rate = *due;
	c = nn_span_count(f, span);
	if (of == NN_SHARE_COUNTED)
		__sync_fetch_and_add(&c->receivers, 1);
	if (of == NN_SHARE_OPENS)
		__sync_fetch_and_add(&c->opened, 1);
	nn_share_adapt(f, rate, span);
	sharers = nn_receivers(f, span);
	if (of == NN_SHARE_OPENS)
		sharers += nn_opening(f, span);
	share = rate / sharers * f->share_scale / NN_SCALE_ONE;
	if (share > rate)
		share = rate;
	return share ? share : 1;
}

/* The least of its shares of the limits on its path. */
static __always_inline __u64 nn_inbound_share(const struct nn_hop *path,
					      __u32 span, __u32 of)
{
	__u64 least = 0, share;

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path[i].node)
			break;
		share = nn_node_share(path[i].node, path[i].generation, of,
				      span);
		if (share && (!least || share < least))
			least = share;
	}
	return least;
}

/* Is there a queue for what the socket receives? Where something limited
 * appears the way to it is made some milliseconds later. */
static __always_inline bool nn_has_queue(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	__u32 netns = sk->__sk_common.skc_net.net->ns.inum;

	return bpf_map_lookup_elem(&places, &netns);
}

/* A connection's part of the queue: 10 ms of its share. Where that is more than
 * some large segments (GSO) it is as much as these, but 3 ms. */
static __always_inline __u64 nn_queue_part(__u64 share)
{
	__u64 part = share * NN_QUEUE_NS / NN_NSEC_PER_SEC;
	__u64 least = share * NN_QUEUE_LEAST_NS / NN_NSEC_PER_SEC;

	if (least < NN_QUEUE_LARGE)
		least = NN_QUEUE_LARGE;
	return part < least ? part : least;
}

/* The path full, and the queue as long as it may be. Without a queue the window
 * alone holds the limit. */
static __always_inline __u32 nn_window_for(__u64 share, __u32 rtt_us, __u32 mss,
					   bool queue)
{
	__u64 window = share / 1000 * rtt_us / 1000;

	if (queue)
		window += nn_queue_part(share);
	if (window < 2 * mss)
		window = 2 * mss;
	if (window > NN_WINDOW_MAX)
		window = NN_WINDOW_MAX;
	return window;
}

/* The window that a connection is opened with, in segments. It counts as a
 * receiver: of many that are opened at once each gets less. */
static __always_inline int nn_window_first(struct bpf_sock *sk)
{
	__u32 span = nn_span_now(bpf_ktime_get_ns());
	struct nn_receiver *r;
	struct nn_socket *s;
	struct tcp_sock *tp;
	bool queue;
	__u64 share;

	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s)
		return -1;
	if (s->flags & NN_SOCK_LOOPBACK)
		return -1;
	share = nn_inbound_share(s->path, span, NN_SHARE_COUNTED);
	if (!share)
		return -1;
	r = bpf_sk_storage_get(&receivers, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (r)
		r->span = span;
	tp = bpf_skc_to_tcp_sock(sk);
	queue = !tp || nn_has_queue(tp);
	return nn_window_for(share, queue ? NN_RTT_GUESS_US : 0, 1460, queue) /
	       1460;
}

/* Keep the window of a connection to its share, or give back what was there
 * before. ctx is what bpf_setsockopt takes here. */
static __always_inline void nn_window_keep(void *ctx, struct sock *sk,
					   struct tcp_sock *tp,
					   struct nn_socket *s, bool begins)
{
	struct nn_receiver *r = bpf_sk_storage_get(&receivers, sk, 0, 0);
	const struct tcp_sock___receive *rx = (void *)tp;
	const struct tcp_options_received *options = &rx->rx_opt;
	__u32 span = nn_span_now(bpf_ktime_get_ns()), want, now, rtt_us, unit,
	      mss;
	__u64 share = 0, slack;
	bool counted;

	counted = r ? r->span != span && r->bytes_received != rx->bytes_received
		    : begins;
	if (!(s->flags & NN_SOCK_LOOPBACK))
		share = nn_inbound_share(s->path, span,
					 counted ? NN_SHARE_COUNTED
						 : NN_SHARE_LOOK);
	if (!share) {
		if (!r || !r->clamp)
			return;
		want = rx->window_clamp > r->own_clamp ? rx->window_clamp
						       : r->own_clamp;
		r->clamp = 0;
		bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &want,
			       sizeof(want));
		return;
	}
	if (!r)
		r = bpf_sk_storage_get(&receivers, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!r) {
		nn_shape_fault(NN_SHAPE_FAULT_WINDOW);
		return;
	}
	if (counted) {
		r->span = span;
		r->bytes_received = rx->bytes_received;
	}
	rtt_us = tp->rtt_min.s[0].v;
	if (rtt_us == NN_RTT_UNKNOWN)
		rtt_us = NN_RTT_GUESS_US;
	mss = rx->advmss;
	/* what its options leave of a segment */
	if (tp->tcp_header_len > NN_TCP_HEADER && mss > tp->tcp_header_len)
		mss -= tp->tcp_header_len - NN_TCP_HEADER;
	want = nn_window_for(share, rtt_us, mss, nn_has_queue(tp));
	/* TCP rounds up to what the window's scale can say: round to the
	 * nearest */
	unit = 1U << BPF_CORE_READ_BITFIELD(options, rcv_wscale);
	if (want > unit)
		want = (want + unit / 2) & ~(unit - 1);
	if (want < 2 * mss)
		want = (2 * mss + unit - 1) & ~(unit - 1);
	/* the kernel's own tuning, or the program, has set another */
	now = rx->window_clamp;
	if (s->window_begin && now == s->window_begin && !r->clamp) {
		r->own_clamp = s->window_before;
		r->clamp = now;
	}
	if (now != r->clamp && (!r->clamp || now > r->own_clamp))
		r->own_clamp = now;
	/* near enough: at a distance, too, of the queue and not of the path */
	slack = nn_queue_part(share) / NN_SLACK;
	if (now == r->clamp && want <= now + slack && now <= want + slack)
		return;
	/* a program may want less than its share */
	if (want > r->own_clamp)
		want = r->own_clamp;
	if (want == now) {
		r->clamp = now;
		return;
	}
	bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &want, sizeof(want));
	r->clamp = rx->window_clamp;
}

static __always_inline void nn_window_called(struct bpf_sock_ops *ctx,
					     bool begins)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;

	s = sk ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
	tp = s ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return;
	if (begins)
		nn_port_of(s, ctx->local_port);
	nn_window_keep(ctx, (struct sock *)tp, tp, s, begins);
}

#endif
