/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file limits how much data TCP sends at a time. It sets the congestion
 * window on paths so short that TCP would send 64 KB at any rate.
 */
#ifndef NETNICE_WINDOW_H
#define NETNICE_WINDOW_H

#include "charge.h"

#define NN_MSS		    1448 /* of a connection that does not know its own */
#define NN_CHUNK_NS	    8000000ULL	/* a chunk's time at the limit */
#define NN_AHEAD_NS	    40000000ULL /* of a socket's share in one chunk */
#define NN_SMALL_CHUNKS	    2500	/* a second, of NN_SOCK_SMALL */
#define NN_CHUNK_SEGMENTS   2		/* but these at least */
#define NN_PAIR_SHARE	    30000	/* bytes/s: two segments in 0.1 s */
#define NN_CHUNK_MAX	    60000	/* beyond, TCP's own size is right */
#define NN_NO_CLAMP	    0x7fffffff
#define NN_DISTANT_US	    3000
#define NN_OPEN_NS	    10000000ULL /* further off, others wait already */
#define NN_UNPACED_SEGMENTS 10		/* TCP sends these without pacing */

static __always_inline __u32 nn_mss(const struct tcp_sock *tp)
{
	return tp->mss_cache ? tp->mss_cache : NN_MSS;
}

static __always_inline bool nn_window_exceeds(__u32 cwnd, __u32 clamp)
{
	return clamp && clamp != NN_NO_CLAMP && cwnd > clamp + clamp / 4 + 2;
}

static __always_inline bool nn_distant(const struct tcp_sock *tp)
{
	__u32 least_us = tp->rtt_min.s[0].v;

	/* ~0 = not measured yet */
	return least_us >= NN_DISTANT_US && least_us != 0xffffffff;
}

/* A connection's first window: half of what will be its window, since others
 * may begin at the same time, and no share is known yet. */
static __always_inline __u32 nn_window_begin(const struct nn_socket *s)
{
	__u32 window = s->clamp_segments, least = 2 * NN_CHUNK_SEGMENTS;

	if (window > least)
		window = window / 2 > least ? window / 2 : least;
	return window < NN_UNPACED_SEGMENTS ? window : NN_UNPACED_SEGMENTS;
}

/* The window after a connection's first chunk. TCP sends half a window at a
 * time, and slow start goes on only while all of it is in use: on a short path
 * a paced connection stays at the chunks that it began with. The connection
 * therefore gets the chunks that suit the limit, unless others wait already:
 * each is ahead by one. */
static __always_inline void nn_window_open(void *ctx, const struct nn_socket *s,
					   const struct tcp_sock *tp,
					   const struct nn_transmit *x)
{
	__u32 mss = nn_mss(tp), window;
	__u64 chunk = s->limit_bytes_per_sec / (NN_NSEC_PER_SEC / NN_CHUNK_NS);

	if (nn_distant(tp) || x->next_ns > x->now_ns + NN_OPEN_NS)
		return;
	if (chunk > NN_CHUNK_MAX)
		chunk = NN_CHUNK_MAX;
	window = 2 * chunk / mss;
	if (window > NN_UNPACED_SEGMENTS)
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_IW, &window,
			       sizeof(window));
}

/* Keep the congestion window at two chunks and two round trips of the
 * socket's share. At a distance TCP's chunks suit its pacing rate by
 * themselves, and a window of the path's size is what gets over losses: the
 * window is left alone. Set when it is off by more than a quarter, and again
 * while the window is above it: setting it also sets the slow start threshold,
 * to which TCP reduces the window (see nn_egress_judge). ctx is what
 * bpf_setsockopt takes here. */
static __always_inline void nn_clamp(void *ctx, struct nn_socket *s,
				     struct tcp_sock *tp)
{
	__u64 limit = s->limit_bytes_per_sec, share, chunk, most;
	__u32 mss = nn_mss(tp);
	__u32 segments, want, off;
	__u64 bdp, rtt_us, least_us = tp->rtt_min.s[0].v;
	bool distant = nn_distant(tp);

	if (!limit || limit == NN_UNLIMITED)
		return;
	chunk = limit / (NN_NSEC_PER_SEC / NN_CHUNK_NS);
	/* Each of many sockets is a chunk ahead of its pay. */
	share = s->share_bytes_per_sec;
	if (!share || share > limit)
		share = limit;
	most = share / (NN_NSEC_PER_SEC / NN_AHEAD_NS);
	/* A newcomer leaves the background a hundredth. With large chunks the
	 * background would wait for seconds, even after the others have gone.
	 */
	if (s->flags & NN_SOCK_SMALL && most > limit / NN_SMALL_CHUNKS)
		most = limit / NN_SMALL_CHUNKS;
	if (most < NN_CHUNK_SEGMENTS * mss)
		most = NN_CHUNK_SEGMENTS * mss;
	if (chunk > most)
		chunk = most;
	if (chunk >= NN_CHUNK_MAX || distant) {
		want = NN_NO_CLAMP;
	} else {
		rtt_us = tp->srtt_us >> 3;
		/* a delayed ACK is no distance */
		if (rtt_us > 2 * least_us + 5000)
			rtt_us = 2 * least_us + 5000;
		segments = chunk / mss;
		/* Two segments are acknowledged at once, one only when the next
		 * comes: send two, unless that makes long pauses. */
		if (segments < 2)
			segments = share > NN_PAIR_SHARE ||
						   s->flags & NN_SOCK_SLICE
					   ? 2
					   : 1;
		bdp = share / 1000 * rtt_us / 1000 / mss;
		want = 2 * segments + 2 * bdp;
	}
	if (want == NN_NO_CLAMP && !s->clamp_segments)
		return;
	off = want > s->clamp_segments ? want - s->clamp_segments
				       : s->clamp_segments - want;
	if (off <= s->clamp_segments / 4) {
		if (!nn_window_exceeds(tp->snd_cwnd, s->clamp_segments))
			return;
		want = s->clamp_segments;
	}
	s->clamp_segments = want;
	bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &want,
		       sizeof(want));
}

#endif
