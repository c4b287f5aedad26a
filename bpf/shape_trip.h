/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file estimates the round trip to a sender by its windows. For a socket
 * that only receives, TCP's own least round trip is that of the handshake. The
 * path may be longer later, because others fill a queue on it or a radio is
 * slow. A window of the handshake's length then carries less than the limit.
 *
 * A sender that waits for the window sends the end of a window when the window
 * reaches it. Its echo of our time stamp then shows one round trip. A sender
 * that waits for its program or for its congestion window has seen later stamps
 * meanwhile, and the time of its windows says nothing.
 */
#ifndef NETNICE_SHAPE_TRIP_H
#define NETNICE_SHAPE_TRIP_H

#include "shape_share.h"

#define NN_TRIP_WAITED	   2 /* 1/n of a window's time: the echo may be off */
#define NN_TRIP_HELD_US	   15000U /* that a limit holds: its queue is too long */
#define NN_TRIP_LONGEST_MS 2000U

struct tcp_options_received {
	__u32 rcv_tsecr;
	__u16 rcv_wscale : 4;
} __core;

/* The fields of a TCP socket that are used here beside those of kernel.h. */
struct tcp_sock___receive {
	__u64 tcp_mstamp; /* us */
	__u64 bytes_received;
	__u32 rcv_nxt;
	__u32 rcv_wup;
	__u32 rcv_wnd;
	__u32 window_clamp;
	__u16 advmss;
	__u8 tcp_usec_ts : 1; /* since Linux 6.7, by a route's feature */
	struct tcp_options_received rx_opt;
} __core;

/* nn_echo_ms returns the time of the time stamp that the sender has echoed, by
 * TCP's clock in ms. */
static __always_inline __u32 nn_echo_ms(const struct tcp_sock___receive *rx,
					__u32 now_ms)
{
	__u32 echo = rx->rx_opt.rcv_tsecr;

	if (bpf_core_field_exists(rx->tcp_usec_ts) &&
	    BPF_CORE_READ_BITFIELD(rx, tcp_usec_ts))
		return now_ms - ((__u32)rx->tcp_mstamp - echo) / 1000;
	return echo;
}

/* Something is acknowledged: has all of a window come that was promised before?
 * The round trip is lengthened while the limits have room only: else it would
 * have their own queue in it. It is shortened as it gets shorter, and while
 * that queue is too long. least_us: to begin with. */
static __always_inline void nn_trip_acked(struct nn_receiver *r,
					  const struct tcp_sock___receive *rx,
					  __u32 least_us, __u32 held_us)
{
	__u32 now_ms = rx->tcp_mstamp / 1000, before_ms = r->acked_ms;
	__u32 echo_ms = nn_echo_ms(rx, now_ms), took_ms, waited_ms, us;

	r->acked_ms = now_ms;
	if (r->edge_ms) {
		if (now_ms - echo_ms < r->echoed_ms)
			r->echoed_ms = now_ms - echo_ms;
		if (held_us > r->held_us)
			r->held_us = held_us;
		if ((__s32)(rx->rcv_nxt - r->edge) < 0)
			return;
		took_ms = now_ms - r->edge_ms;
		waited_ms = echo_ms - r->edge_ms;
		if (!r->trip_us)
			r->trip_us = least_us;
		/* the shortest: after a pause of the sender's the first echo
		 * has been on the way for long. TCP's clock ticks in ms: one
		 * more, as the part of one that was cut off */
		us = r->echoed_ms < NN_TRIP_LONGEST_MS
			     ? (r->echoed_ms + 1) * 1000
			     : 0;
		if (held_us > NN_TRIP_HELD_US) {
			/* not to less than was measured: what a full queue
			 * drops may be taken for waiting in it */
			if (r->trip_us > least_us)
				r->trip_us -= nn_least(r->trip_us - least_us,
						       held_us / 4);
		} else if (!rx->rx_opt.rcv_tsecr || !us ||
			   waited_ms > took_ms / NN_TRIP_WAITED)
			; /* it has no stamps, or waited for itself */
		else if (us < r->trip_us)
			r->trip_us -= (r->trip_us - us) / 4;
		else if (!r->held_us)
			r->trip_us += (us - r->trip_us + 1) / 2;
	}
	/* this one promises something once it has been made; what the one
	 * before it promised is known */
	r->edge = rx->rcv_wup + rx->rcv_wnd;
	r->edge_ms = before_ms;
	r->echoed_ms = ~0U;
	r->held_us = 0;
}

#endif
