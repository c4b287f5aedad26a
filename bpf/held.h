/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file defers chunks whose departure time is far off where TCP's timer was
 * not set for it: nn_hold decides that and reserves their bytes, the egress
 * hook sends them back, and nn_held_waits decides at each further try.
 */
#ifndef NETNICE_HELD_H
#define NETNICE_HELD_H

#include "charge.h"
#include "cover.h"

static __always_inline bool nn_far(const struct nn_transmit *x, __u64 at_ns)
{
	return at_ns > x->now_ns + x->slack_ns;
}

/* Lowering a limit by more than this moves departure times no further. */
#define NN_LOWERED_MAX (1U << 16)
/* A chunk that waits longer than this keeps its departure time. */
#define NN_LOWERED_WAIT_NS (1ULL << 39)

/* nn_lowered_due moves a departure time that was promised at the socket's
 * former limit, if its limit has been lowered since: what is ahead of it takes
 * longer, all but nn_former_bytes. Else hundreds of connections would keep
 * their times of before, which are seconds away, and so the former rate. */
static __always_inline __u64 nn_lowered_due(const struct nn_socket *s,
					    const struct nn_transmit *x,
					    __u64 due)
{
	__u64 former = s->limit_bytes_per_sec, times, wait, early;

	if (x->limit >= former || !x->limit || former >> 48 || !x->lowered_ns ||
	    due <= x->lowered_ns)
		return due;
	wait = due - x->lowered_ns;
	early = nn_former_bytes(x->limit) * NN_NSEC_PER_SEC / former;
	if (wait <= early || wait >= NN_LOWERED_WAIT_NS)
		return due;
	times = (former << 8) / x->limit;
	if (times > NN_LOWERED_MAX << 8)
		times = NN_LOWERED_MAX << 8;
	return x->lowered_ns + early + ((wait - early) * times >> 8);
}

/* nn_held_later moves the departure time of a deferred chunk if its limit has
 * been lowered since it was deferred. */
static __always_inline void nn_held_later(struct nn_socket *s,
					  struct nn_transmit *x)
{
	if (x->limit >= s->limit_bytes_per_sec || !x->limit)
		return;
	s->due_ns = nn_lowered_due(s, x, s->due_ns);
	s->limit_bytes_per_sec = x->limit;
}

/* nn_hold defers a chunk if TCP's timer was not set for it and its departure
 * time is far off. The chunk keeps its departure time by a reservation for all
 * its bytes: a connection may be closed after this chunk, and then no later
 * chunk waits until it is paid. */
static __always_inline bool nn_hold(struct bpf_sock_ops *ctx,
				    struct nn_socket *s,
				    const struct tcp_sock *tp,
				    struct nn_transmit *x)
{
	__u32 event = NN_EVENT_HELD;
	__u64 due, own;

	if (s->flags & NN_SOCK_STARTED && !(s->flags & NN_SOCK_ADOPTED)) {
		/* TCP's timer is set then. After two minutes TCP sends the
		 * chunk as a window probe, whatever the timer. */
		bool timed = (ctx->data_segs_out >= NN_UNPACED_SEGMENTS &&
			      s->depart_ns < x->now_ns + NN_TIMER_MAX_NS / 2) ||
			     !nn_far(x, s->depart_ns);

		if (timed && lowered_ns + NN_TIMER_MAX_NS < x->now_ns)
			return false;
		nn_path_walk(s, x, NN_ASK);
		due = nn_lowered_due(s, x, s->depart_ns);
		if (timed && due == s->depart_ns)
			return false;
	} else {
		/* An adopted connection's first chunk is asked for like a new
		 * one's: hundreds of connections that ran before the limit
		 * would else send 64 KB each at the same moment. */
		nn_path_walk(s, x, NN_ASK);
		due = x->before_ns;
		if (x->newborn_ns > due)
			due = x->newborn_ns;
	}
	if (!nn_far(x, due) || (!x->newborn_ns && !nn_far(x, x->less_held_ns)))
		return false;
	if (!nn_egress_sees(s, &tp->inet_conn.icsk_inet.sk))
		return false;
	/* a connection that is older than the limit is no newcomer */
	if (x->newborn_ns && !(s->flags & NN_SOCK_ADOPTED))
		s->flags |= NN_SOCK_NEWBORN;
	nn_path_walk(s, x, NN_RESERVE);
	s->due_ns = due;
	s->held_ns = x->now_ns;
	own = x->wire_bytes * NN_NSEC_PER_SEC / x->limit;
	s->ahead_ns = NN_HOLD_NS;
	if (x->unheld_ns > x->now_ns + s->ahead_ns + own)
		s->ahead_ns = x->unheld_ns - x->now_ns - own;
	s->prepaid_bytes += x->wire_bytes;
	s->depart_ns = x->next_ns;
	s->limit_bytes_per_sec = x->limit;
	s->flags |= NN_SOCK_HOLD;
	/* If this event is lost, TCP's own timer tries again. */
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return true;
}

/* nn_closed tells that the program has closed the connection. The remaining
 * data leaves when its time comes. A closed MPTCP socket's subflow stays
 * established as long as it sends, but belongs to no file any more. */
static __always_inline bool nn_closed(const struct bpf_sock_ops *ctx,
				      const struct tcp_sock *tp)
{
	return (ctx->state != TCP_ESTABLISHED &&
		ctx->state != TCP_CLOSE_WAIT) ||
	       !tp->inet_conn.icsk_inet.sk.sk_socket;
}

/* TCP tries to transmit a deferred chunk: nn_held_waits tells whether the chunk
 * still has to wait. */
static __always_inline bool nn_held_waits(const struct bpf_sock_ops *ctx,
					  struct nn_socket *s,
					  const struct tcp_sock *tp,
					  struct nn_transmit *x)
{
	__u64 turn, ahead = NN_IDLE_NS;

	nn_path_walk(s, x, NN_ASK);
	nn_held_later(s, x);
	if (s->flags & NN_SOCK_NEWBORN && x->newborn_ns) {
		/* look again: others may have come since it was deferred */
		if (x->before_ns <= x->now_ns + NN_IDLE_NS)
			return false;
		s->due_ns = x->before_ns;
		s->limit_bytes_per_sec = x->limit;
		return true;
	}
	/* A chunk whose departure time has come may leave ahead of its pay, as
	 * far as the other chunks were ahead when it came, and further the
	 * longer it waits. It may also leave before its time by half its wait,
	 * because TCP tries again only after twice that wait. Other chunks
	 * leave when the clock would soon be idle. Chunks that come late then
	 * miss that time. In a crowd of connections that were closed at once
	 * the late ones must find some time as well. */
	turn = s->due_ns - (x->now_ns - s->held_ns) / 2;
	if (x->now_ns > turn)
		ahead = s->ahead_ns;
	if (x->now_ns > s->due_ns &&
	    (x->reserved_ns < NN_CROWD_NS || !nn_closed(ctx, tp)))
		ahead += x->now_ns - s->due_ns;
	return x->unheld_ns > x->now_ns + ahead;
}

/* nn_held_sooner stores a sooner departure time of a deferred chunk if a limit
 * on its path has been raised or lifted meanwhile. The lowest limit may be
 * another than the one that the chunk waits for, so it is never due before the
 * bytes that have left are paid. */
static __always_inline void nn_held_sooner(struct nn_socket *s,
					   struct nn_transmit *x)
{
	__u64 own, due;

	nn_path_walk(s, x, NN_ASK);
	nn_held_later(s, x);
	own = s->prepaid_bytes * NN_NSEC_PER_SEC / x->limit;
	due = x->before_ns > own ? x->before_ns - own : 0;
	nn_later(&due, x->unheld_ns);
	if (!x->before_ns) /* no limit holds any more */
		due = x->now_ns;
	if (due >= s->due_ns)
		return;
	s->due_ns = due;
	s->limit_bytes_per_sec = x->limit;
}

/* A deferred chunk leaves, or the first part of it: TCP tries with one segment.
 * The other parts leave after it without further delay. */
static __always_inline void nn_held_leaves(struct nn_socket *s,
					   struct nn_transmit *x)
{
	x->late = x->now_ns > s->due_ns + NN_LATE_NS;
	s->flags &= ~NN_SOCK_NEWBORN;
	s->due_ns = 0;
}

/* nn_prepaid_use uses up the reservation for wire_bytes that leave now, no more
 * than prepaid_bytes. */
static __always_inline void nn_prepaid_use(struct nn_socket *s,
					   struct nn_transmit *x,
					   __u64 wire_bytes)
{
	__u64 rest = x->wire_bytes;

	s->prepaid_bytes -= wire_bytes;
	x->wire_bytes = wire_bytes;
	nn_path_walk(s, x, NN_REDEEM);
	x->wire_bytes = rest;
}

#endif
