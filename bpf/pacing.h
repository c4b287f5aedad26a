/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * TCP out: the socket itself waits. For each transmit the clocks on the
 * socket's path are charged, and the socket's own pacing timer is set so that
 * its next chunk leaves when all of them have been paid. No packet is queued
 * for it anywhere.
 *
 * Three things need care. TCP does not pace a socket's first ten segments: a
 * first chunk whose turn is far off is sent back at the egress hook, keeping
 * the turn that it has paid for, and TCP tries again. A low pacing rate
 * survives until the next ACK raises it: so the ceiling is lifted again there.
 * On short paths TCP sends 64 KB chunks whatever the rate: the congestion
 * window is kept to two of the chunks that suit the limit.
 */
#ifndef NETNICE_PACING_H
#define NETNICE_PACING_H

#include "window.h"

#define NN_UNPACED_SEGMENTS 10 /* that TCP lets go without pacing */

#define NN_CALLBACKS                                                           \
	(BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_RTT_CB_FLAG)

static __always_inline __u32 nn_pacing_u32(__u64 rate)
{
	if (rate >= 0xffffffffULL)
		return 0xffffffffU;
	return rate ? rate : 1;
}

/* A program's own SO_MAX_PACING_RATE holds beside ours. */
static __always_inline __u32 nn_pacing_with_own(struct nn_socket *s, __u64 rate)
{
	if (s->own_pacing < rate)
		rate = s->own_pacing;
	return nn_pacing_u32(rate);
}

static __always_inline void nn_pacing_set(struct bpf_sock_ops *ctx,
					  struct nn_socket *s, __u64 rate)
{
	__u32 v = nn_pacing_with_own(s, rate);

	bpf_setsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &v, sizeof(v));
}

/* Headers of one segment: TCP's with its usual options, IP's with options or
 * extension headers that the program asked for. */
static __always_inline __u32 nn_headers(const struct nn_socket *s,
					struct tcp_sock *tp)
{
	return tp->tcp_header_len + tp->inet_conn.icsk_ext_hdr_len +
	       (s->flags & NN_SOCK_V6 ? 40 : 20);
}

static __always_inline __u32 nn_mss(struct bpf_sock_ops *ctx)
{
	return ctx->mss_cache ? ctx->mss_cache : 1448;
}

static __always_inline void nn_loopback_look(struct bpf_sock_ops *ctx,
					     struct nn_socket *s)
{
	bool lo;

	if (ctx->family == AF_INET6) {
		__u32 a = ctx->remote_ip6[0], b = ctx->remote_ip6[1],
		      c = ctx->remote_ip6[2], d = ctx->remote_ip6[3];

		if (!a && !b && c == bpf_htonl(0xffff))
			lo = (d & bpf_htonl(0xff000000)) ==
			     bpf_htonl(0x7f000000);
		else
			lo = !a && !b && !c && d == bpf_htonl(1);
		if (a == ctx->local_ip6[0] && b == ctx->local_ip6[1] &&
		    c == ctx->local_ip6[2] && d == ctx->local_ip6[3])
			lo = true;
		s->flags |= NN_SOCK_V6;
	} else {
		lo = (ctx->remote_ip4 & bpf_htonl(0xff000000)) ==
			     bpf_htonl(0x7f000000) ||
		     ctx->remote_ip4 == ctx->local_ip4;
	}
	if (lo)
		s->flags |= NN_SOCK_LOOPBACK;
}

/* A new connection of a limited program: switch the callbacks on. */
static __always_inline void nn_established(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;
	struct nn_transmit x = {};
	__u32 on, iw;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s)
		s = nn_subflow(sk);
	if (!s || !nn_socket_limited(s))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	nn_loopback_look(ctx, s);
	if (!(s->flags & NN_SOCK_OWN_KNOWN)) {
		s->own_pacing = tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate;
		s->flags |= NN_SOCK_OWN_KNOWN;
	}
	on = ctx->bpf_sock_ops_cb_flags;
	if (!(on & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		s->flags |= NN_SOCK_ADDED_HDR;
	if (!(on & BPF_SOCK_OPS_RTT_CB_FLAG))
		s->flags |= NN_SOCK_ADDED_RTT;
	bpf_sock_ops_cb_flags_set(ctx, on | NN_CALLBACKS);
	s->flags |= NN_SOCK_ARMED;

	/* The path's lowest limit, for the first window. */
	x.now_ns = bpf_ktime_get_ns();
	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	/* What no callback sees: the last ACK, which a time-wait socket sends.
	 */
	x.empty = 1;
	x.wire_bytes = nn_headers(s, tp);
	nn_path_walk(s, &x, NN_CHARGE);
	s->limit_bytes_per_sec = x.limit;
	s->share_bytes_per_sec = x.share;
	if (x.limit == NN_UNLIMITED)
		return;
	nn_pacing_set(ctx, s, x.limit * 2);
	nn_clamp(ctx, s, tp);
	iw = s->clamp_segments < NN_UNPACED_SEGMENTS ? s->clamp_segments
						     : NN_UNPACED_SEGMENTS;
	if (iw)
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &iw, sizeof(iw));
}

/* No limit holds any more: give the socket back as it was. */
static __always_inline void nn_release(struct bpf_sock_ops *ctx,
				       struct nn_socket *s)
{
	__u32 v = nn_pacing_u32(s->own_pacing), off = 0;

	bpf_setsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &v, sizeof(v));
	if (s->clamp_segments) {
		v = NN_NO_CLAMP;
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &v,
			       sizeof(v));
		s->clamp_segments = 0;
	}
	if (s->flags & NN_SOCK_ADDED_HDR)
		off |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (s->flags & NN_SOCK_ADDED_RTT)
		off |= BPF_SOCK_OPS_RTT_CB_FLAG;
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags & ~off);
	s->flags &= NN_SOCK_LOOPBACK | NN_SOCK_V6 | NN_SOCK_SUBFLOW;
	s->prepaid_bytes = 0;
	s->due_ns = 0;
	s->limit_bytes_per_sec = 0;
}

/* An ACK has come, the congestion control sets a pacing rate next: let it. */
static __always_inline void nn_acked(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;
	__u64 pacing;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s || !(s->flags & NN_SOCK_ARMED))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	if (!s->limit_bytes_per_sec || s->limit_bytes_per_sec == NN_UNLIMITED)
		return;
	pacing = s->limit_bytes_per_sec * 2;
	/* By this rate TCP sizes its chunks, to 1 ms of it. */
	if (s->share_bytes_per_sec && s->share_bytes_per_sec < pacing / 8)
		pacing = s->share_bytes_per_sec * 8;
	nn_pacing_set(ctx, s, pacing);
	/* the timer's true setting */
	if (ctx->data_segs_out >= NN_UNPACED_SEGMENTS)
		s->depart_ns = tp->tcp_wstamp_ns;
	nn_clamp(ctx, s, tp);
}

static __always_inline bool nn_far(const struct nn_transmit *x, __u64 at_ns)
{
	return at_ns > x->now_ns + x->slack_ns;
}

/* The egress hook is there while there is a node, or for sockets' rates. */
static __always_inline bool nn_egress_attached(void)
{
	const struct nn_policy *p = nn_policy();

	return p && p->kinds;
}

/* A chunk for which TCP's timer was not set, and whose turn is far off, is
 * held. It keeps its turn by a reservation for all of it: a connection may be
 * closed after this chunk, and then nobody waits until it is paid. */
static __always_inline bool nn_hold(struct bpf_sock_ops *ctx,
				    struct nn_socket *s, struct nn_transmit *x)
{
	__u64 due;

	if (!s->path[0].node && !nn_egress_attached())
		return false;
	if (s->flags & NN_SOCK_STARTED) {
		if (ctx->data_segs_out >= NN_UNPACED_SEGMENTS)
			return false;
		due = s->depart_ns;
		if (!nn_far(x, due))
			return false;
		nn_path_walk(s, x, NN_ASK);
	} else {
		nn_path_walk(s, x, NN_ASK);
		due = x->before_ns;
		if (x->newborn_ns > due)
			due = x->newborn_ns;
	}
	if (!nn_far(x, due) || (!x->newborn_ns && !nn_far(x, x->sent_ns)))
		return false;
	if (x->newborn_ns)
		s->flags |= NN_SOCK_NEWBORN;
	nn_path_walk(s, x, NN_RESERVE);
	s->due_ns = due;
	s->held_ns = x->now_ns;
	s->prepaid_bytes = x->wire_bytes;
	s->depart_ns = x->next_ns;
	s->limit_bytes_per_sec = x->limit;
	s->flags |= NN_SOCK_HOLD;
	return true;
}

/* TCP is about to transmit: charge it and set the wait for what follows. */
static __always_inline void nn_transmit(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_transmit x = {};
	__u64 len = ctx->skb_len, want, timer, credit, rate, stamp;
	__u32 segments, mss, option = 0;
	struct nn_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s || !(s->flags & NN_SOCK_ARMED))
		return;
	s->flags &= ~NN_SOCK_HOLD;
	if (s->flags & NN_SOCK_SUBFLOW && s->epoch != nn_epoch())
		nn_subflow(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	if (!nn_path_live(s)) {
		nn_release(ctx, s);
		return;
	}
	mss = nn_mss(ctx);
	if (s->flags & NN_SOCK_SUBFLOW) {
		option = nn_subflow_option(sk);
		mss -= mss > 2 * option ? option : 0;
	}
	segments = len ? (len + mss - 1) / mss : 1;
	x.now_ns = bpf_ktime_get_ns();
	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	x.slack_ns = s->flags & NN_SOCK_STARTED ? NN_HOLD_NS : NN_HOLD_FIRST_NS;
	x.wire_bytes = len + segments * (nn_headers(s, tp) + option);
	if (!len) {
		/* Acknowledgements are charged, never held. */
		x.empty = 1;
		nn_path_walk(s, &x, NN_CHARGE);
		return;
	}
	if (s->due_ns) {
		__u64 wire = x.wire_bytes, soon;
		bool back;

		nn_path_walk(s, &x, NN_ASK);
		/* TCP tries again after twice the time that it has waited. */
		soon = (x.now_ns - s->held_ns) / 2;
		/* Its turn has come (but not all those at once whose turns came
		 * since they last tried), or the time would be idle. */
		if (s->flags & NN_SOCK_NEWBORN) {
			/* as it is by now, after a raised limit for instance */
			if (x.before_ns < s->due_ns)
				s->due_ns = x.before_ns;
			back = nn_far(&x, s->due_ns - soon);
		} else {
			back = (nn_far(&x, s->due_ns - soon) ||
				nn_far(&x, x.redeem_ns)) &&
			       nn_far(&x, x.sent_ns);
		}
		if (back) {
			s->flags |= NN_SOCK_HOLD;
			return;
		}
		s->flags &= ~NN_SOCK_NEWBORN;
		s->due_ns = 0;
		x.wire_bytes = s->prepaid_bytes;
		nn_path_walk(s, &x, NN_REDEEM);
		x.wire_bytes = wire;
	}
	if (s->prepaid_bytes) {
		__u64 paid = s->prepaid_bytes;

		if (paid > x.wire_bytes)
			paid = x.wire_bytes;
		s->prepaid_bytes -= paid;
		x.wire_bytes -= paid;
		if (!x.wire_bytes && !x.before_ns)
			nn_path_walk(s, &x, NN_ASK);
	}
	if (x.wire_bytes) {
		if (nn_hold(ctx, s, &x))
			return;
		x.odd = s->flags & NN_SOCK_ADOPTED;
		nn_path_walk(s, &x, NN_CHARGE);
		if (s->limit_bytes_per_sec != x.limit) {
			s->limit_bytes_per_sec = x.limit;
			nn_clamp(ctx, s, tp);
		}
	} else {
		/* The rest of what is reserved follows at once, what comes then
		 * waits like everybody's next chunk. */
		x.next_ns = s->prepaid_bytes ? x.now_ns : x.before_ns;
	}
	s->flags |= NN_SOCK_STARTED;
	s->flags &= ~NN_SOCK_ADOPTED;

	/* TCP advances its send time stamp by len / rate, less the lateness of
	 * this chunk, of which it takes at most half: aim at next_ns. */
	stamp = tp->tcp_wstamp_ns;
	rate = NN_UNLIMITED;
	if (x.next_ns > stamp) {
		want = x.next_ns - stamp;
		credit = s->depart_ns && stamp > s->depart_ns
				 ? stamp - s->depart_ns
				 : 0;
		timer = credit < want ? want + credit : 2 * want;
		rate = len * NN_NSEC_PER_SEC / timer;
		s->share_bytes_per_sec = len * NN_NSEC_PER_SEC / want;
		s->depart_ns = x.next_ns;
	} else {
		/* It does not wait: its share may be larger than was thought.
		 */
		s->share_bytes_per_sec += s->share_bytes_per_sec / 4;
		s->depart_ns = stamp;
	}
	nn_pacing_set(ctx, s, rate);
}

#endif
