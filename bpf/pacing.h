/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file paces TCP egress in the socket itself. Each transmit charges the
 * clocks on the socket's path. The socket's own pacing timer is then set so
 * that its next chunk leaves when all of them have been paid. No packet is
 * queued for it anywhere.
 *
 * Three things need care:
 *
 * TCP does not pace a socket's first ten segments. The egress hook sends a
 * first chunk back if its departure time is far off. The chunk keeps the
 * departure time that it has paid for, and TCP tries again.
 *
 * A low pacing rate lasts until the next ACK raises it. The callback at that
 * ACK therefore lifts the ceiling again.
 *
 * On short paths TCP sends 64 KB chunks at any rate. The congestion window is
 * therefore limited to two of the chunks that suit the limit.
 */
#ifndef NETNICE_PACING_H
#define NETNICE_PACING_H

#include "acknowledge.h"
#include "arm.h"
#include "held.h"
#include "socket.h"

/* A socket's unsettled bytes are capped at this number. They were charged and
 * have not come to the egress hook: they may wait in a firewall's queue, or be
 * lost. */
#define NN_UNSETTLED_MAX 65536

/* TCP's options have no more bytes in a segment. */
#define NN_OPTIONS_MAX 40

/* Headers of one segment: TCP's with its usual options, IP's with options or
 * extension headers that the program asked for. */
static __always_inline __u32 nn_headers(const struct nn_socket *s,
					struct tcp_sock *tp)
{
	return tp->tcp_header_len + tp->inet_conn.icsk_ext_hdr_len +
	       (s->flags & NN_SOCK_V6 ? 40 : 20);
}

/* nn_chunks_of stores the kind of chunks that suits the socket's path. It
 * returns true if the kind has changed. */
static __always_inline bool nn_chunks_of(struct nn_socket *s,
					 const struct nn_transmit *x)
{
	__u32 before = s->flags;

	s->flags &= ~(NN_SOCK_SMALL | NN_SOCK_SLICE);
	if (x->chunks & NN_CHUNKS_SMALL)
		s->flags |= NN_SOCK_SMALL;
	if (x->chunks & NN_CHUNKS_SLICE)
		s->flags |= NN_SOCK_SLICE;
	return s->flags != before;
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
	if (!s) {
		s = nn_subflow_here(ctx, sk);
	} else if (s->flags & NN_SOCK_SUBFLOW && !nn_socket_limited(s)) {
		nn_subflow(sk); /* a limit came while it was connecting */
	}
	if (!s)
		return;
	if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB || !s->peer_known)
		nn_peer_connected(
			s, sk, ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	nn_leaves_by(s, (struct sock *)tp);
	if (!nn_socket_limited(s))
		return;
	nn_port_of(s, sk->src_port);
	/* It is limited by its listener's node until it has its own. */
	if (s->receive_bytes_per_sec &&
	    ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		nn_egress_event(NN_EVENT_RATE, 0);
	nn_ends_of(s, sk);
	if (s->receive_bytes_per_sec && !(s->flags & NN_SOCK_LOOPBACK))
		nn_receive_begin(ctx, s, tp);
	on = nn_arm(s, ctx->bpf_sock_ops_cb_flags,
		    tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate);
	bpf_sock_ops_cb_flags_set(ctx, on);

	/* The path's lowest limit, for the first window. */
	x.now_ns = bpf_ktime_get_ns();
	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	/* No callback sees the last ACK, because a time-wait socket sends it:
	 * charge it now. */
	x.empty = 1;
	x.wire_bytes = nn_headers(s, tp);
	nn_path_walk(s, &x, NN_CHARGE);
	s->limit_bytes_per_sec = x.limit;
	s->share_bytes_per_sec = x.share;
	nn_chunks_of(s, &x);
	if (x.limit == NN_UNLIMITED)
		return;
	nn_pacing_between(ctx, s, x.limit * 2);
	nn_clamp(ctx, s, tp);
	iw = nn_window_begin(s);
	if (iw)
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &iw, sizeof(iw));
}

/* A program connects a socket. The socket's path may depend on the peer, and it
 * has to be known before the SYN promises a window. */
static __always_inline void nn_connecting(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	s = nn_state_of(sk);
	if (!s) /* the SYN of a subflow may have data */
		s = nn_subflow_here(ctx, sk);
	if (!s)
		return;
	nn_peer_connected(s, sk, false);
	nn_ends_of(s, sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp)
		nn_leaves_by(s, (struct sock *)tp);
	nn_port_of(s, sk->src_port);
}

/* An ACK has come, and the congestion control sets a pacing rate next: lift the
 * ceiling for it. */
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
	if (s->flags & NN_SOCK_SLICE)
		pacing = NN_UNLIMITED; /* it waits for its period, then not */
	else if (s->flags & NN_SOCK_UNHEARD)
		pacing = s->share_bytes_per_sec; /* nothing else paces it */
	/* TCP sizes its chunks to 1 ms of this rate. */
	else if (s->share_bytes_per_sec && s->share_bytes_per_sec < pacing / 8)
		pacing = s->share_bytes_per_sec * 8;
	nn_pacing_between(ctx, s, pacing);
	/* The timer's true setting, unless it was set to a part of the wait. */
	if (ctx->data_segs_out >= NN_UNPACED_SEGMENTS && !s->due_ns &&
	    s->depart_ns < tp->tcp_wstamp_ns + NN_TIMER_MAX_NS / 2)
		s->depart_ns = tp->tcp_wstamp_ns;
	nn_clamp(ctx, s, tp);
}

/* TCP is about to transmit: charge it and set the wait for what follows. */
static __always_inline void nn_transmit(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_transmit x = {};
	__u64 len = ctx->skb_len, want, timer, credit, rate, stamp, bytes, paid;
	__u32 segments, mss, on, option = 0;
	struct nn_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s || !(s->flags & NN_SOCK_ARMED))
		return;
	s->flags &= ~NN_SOCK_HOLD;
	if (s->flags & NN_SOCK_SUBFLOW)
		nn_subflow_follow(sk, s);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	if (!nn_path_live(s)) {
		on = nn_disarm(ctx, s, ctx->bpf_sock_ops_cb_flags);
		bpf_sock_ops_cb_flags_set(ctx, on);
		return;
	}
	nn_receive_keep(ctx, s, tp);
	if (s->unsettled_bytes > NN_UNSETTLED_MAX)
		s->unsettled_bytes = NN_UNSETTLED_MAX;
	mss = nn_mss(tp);
	if (s->flags & NN_SOCK_SUBFLOW) {
		option = nn_subflow_option(sk);
		mss -= mss > 2 * option ? option : 0;
	}
	segments = len ? (len + mss - 1) / mss : 1;
	x.now_ns = bpf_ktime_get_ns();
	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	x.slack_ns = s->flags & NN_SOCK_STARTED ? NN_HOLD_NS : NN_HOLD_FIRST_NS;
	if (s->flags & NN_SOCK_ADOPTED)
		x.slack_ns = NN_IDLE_NS;
	bytes = len + segments * (nn_headers(s, tp) + option);
	/* This segment pays for bytes that left before it uncharged. */
	if (s->unsettled_bytes < 0)
		bytes -= s->unsettled_bytes;
	/* The last segment was charged for MPTCP's option and had none, as the
	 * peer speaks plain TCP. Its charge pays for this segment's option. */
	else if (s->unsettled_bytes < segments * option)
		bytes -= s->unsettled_bytes;
	else
		bytes -= segments * option;
	x.wire_bytes = bytes;
	x.segments = mss + nn_headers(s, tp) + option;
	if (!len) {
		/* Acknowledgements are charged, never held. */
		if (nn_ack_spared(ctx, s, tp, x.now_ns)) {
			s->flags |= NN_SOCK_HOLD;
			return;
		}
		x.empty = 1;
		nn_path_walk(s, &x, NN_CHARGE);
		nn_ack_left(s, tp, &x);
		nn_unknown_sent(s, &x, bytes, segments);
		s->unsettled_bytes += bytes;
		return;
	}
	s->flags &= ~NN_SOCK_UNHEARD;
	if (s->due_ns) {
		if (nn_egress_sees(s, &tp->inet_conn.icsk_inet.sk) &&
		    nn_held_waits(ctx, s, tp, &x)) {
			s->flags |= NN_SOCK_HOLD;
			return;
		}
		nn_held_leaves(s, &x);
	}
	paid = s->prepaid_bytes;
	if (paid > x.wire_bytes)
		paid = x.wire_bytes;
	x.wire_bytes -= paid;
	x.odd = s->flags & NN_SOCK_ADOPTED ? 1 : 0;
	/* A chunk that was deferred may have grown by options meanwhile. It
	 * does not wait again for that. */
	if (x.wire_bytes > (paid ? segments * NN_OPTIONS_MAX : 0) &&
	    nn_hold(ctx, s, tp, &x))
		return;
	if (paid)
		nn_prepaid_use(s, &x, paid);
	if (x.wire_bytes) {
		x.odd |= paid != 0;
		nn_path_walk(s, &x, NN_CHARGE);
		if (nn_chunks_of(s, &x) || s->limit_bytes_per_sec != x.limit) {
			s->limit_bytes_per_sec = x.limit;
			nn_clamp(ctx, s, tp);
		}
	} else {
		/* The rest of the reserved bytes follows at once. Data after
		 * that waits like every other next chunk. */
		x.next_ns =
			s->prepaid_bytes ? x.now_ns : x.before_ns + x.young_ns;
		/* A paced connection's waits until this chunk is paid, and not
		 * until all is that was reserved meanwhile. */
		if (ctx->data_segs_out >= NN_UNPACED_SEGMENTS &&
		    s->depart_ns > x.now_ns)
			x.next_ns = nn_least(x.next_ns, s->depart_ns);
	}
	nn_unknown_sent(s, &x, bytes, segments);
	s->unsettled_bytes += bytes;
	if (!(s->flags & NN_SOCK_STARTED))
		nn_window_open(ctx, s, tp, &x);
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
		/* Nothing can set TCP's timer back, if the limit is lifted or
		 * raised meanwhile. TCP therefore tries soon, and nn_hold
		 * defers the next chunk. */
		if (want > NN_TIMER_MAX_NS &&
		    nn_egress_sees(s, &tp->inet_conn.icsk_inet.sk))
			rate = NN_PACING_ONE_SEGMENT;
		s->share_bytes_per_sec = len * NN_NSEC_PER_SEC / want;
		s->depart_ns = x.next_ns;
	} else {
		/* It does not wait: its share may be larger than assumed. */
		s->share_bytes_per_sec += s->share_bytes_per_sec / 4;
		s->depart_ns = stamp;
	}
	nn_pacing_set(ctx, s, rate);
}

#endif
