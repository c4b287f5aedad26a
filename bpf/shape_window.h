/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file sets the receive windows of limited TCP sockets. The bytes that a
 * sender may send ahead wait in the limit's queue. A window that fills just the
 * path and 10 ms of queue keeps that queue short and avoids losses. Each
 * receiver gets its share of the limit (shape_share.h).
 */
#ifndef NETNICE_SHAPE_WINDOW_H
#define NETNICE_SHAPE_WINDOW_H

#include "shape_trip.h"

#define NN_RTT_UNKNOWN	  (~0U)
#define NN_RTT_GUESS_US	  20000U
#define NN_WINDOW_MAX	  (1U << 30)
#define NN_TCP_HEADER	  20U
#define NN_QUEUE_LEAST_NS 3000000ULL
#define NN_QUEUE_LARGE	  (96ULL << 10)
#define NN_SLACK	  16 /* part of the queue that may be off */

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

/* The events at which netnice looks at a window. */
enum nn_window_at {
	NN_WINDOW_BEGINS, /* the connection is set up */
	NN_WINDOW_ACKS,	  /* something leaves, with the window in it */
	NN_WINDOW_VISIT,
};

/* The initial window of a connection, in segments. The connection counts as a
 * receiver, so each of many that open at once gets less. */
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
	share = nn_inbound_share(s, span, NN_SHARE_COUNTED, 0, NULL);
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
					   struct nn_socket *s,
					   enum nn_window_at at)
{
	struct nn_receiver *r = bpf_sk_storage_get(&receivers, sk, 0, 0);
	const struct tcp_sock___receive *rx = (void *)tp;
	const struct tcp_options_received *options = &rx->rx_opt;
	__u32 span = nn_span_now(bpf_ktime_get_ns()), want, now, rtt_us, unit,
	      mss, held_us = 0;
	__u64 share = 0, slack;
	bool counted;

	counted = r ? r->span != span && r->bytes_received != rx->bytes_received
		    : at == NN_WINDOW_BEGINS;
	if (!(s->flags & NN_SOCK_LOOPBACK))
		share = nn_inbound_share(
			s, span, counted ? NN_SHARE_COUNTED : NN_SHARE_LOOK,
			r ? rx->bytes_received - r->bytes_received : 0,
			&held_us);
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
	if (at == NN_WINDOW_ACKS)
		nn_trip_acked(r, rx, rtt_us, held_us);
	if (r->trip_us)
		rtt_us = r->trip_us;
	mss = rx->advmss;
	/* the segment without its options */
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
					     enum nn_window_at at)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;

	s = sk ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
	tp = s ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return;
	if (at == NN_WINDOW_BEGINS)
		nn_port_of(s, ctx->local_port);
	nn_window_keep(ctx, (struct sock *)tp, tp, s, at);
}

#endif
