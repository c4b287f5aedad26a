/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file arms a socket: netnice's callbacks are on, and netnice sets its
 * pacing rate and window. It also restores the socket as it was. A sockops
 * program, a socket option and an iterator do that. ctx is the context that
 * bpf_setsockopt takes there.
 */
#ifndef NETNICE_ARM_H
#define NETNICE_ARM_H

#include "window.h"

#define NN_CALLBACKS                                                           \
	(BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_RTT_CB_FLAG)

/* Another release's programs are attached, too, for the moment in which this
 * one takes its limits over. */
__u32 former_release;

static __always_inline __u32 nn_pacing_u32(__u64 rate)
{
	if (rate >= 0xffffffffULL)
		return 0xffffffffU;
	return rate ? rate : 1;
}

/* A program's own SO_MAX_PACING_RATE holds beside ours. */
static __always_inline void nn_pacing_set(void *ctx, const struct nn_socket *s,
					  __u64 rate)
{
	__u32 v = nn_pacing_u32(s->own_pacing < rate ? s->own_pacing : rate);

	bpf_setsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &v, sizeof(v));
}

/* TCP sizes its chunks by its pacing rate: no fewer than two segments, of which
 * BBR makes one below 1.2 Mbit/s. */
#define NN_PACING_ONE_SEGMENT  149999ULL
#define NN_PACING_TWO_SEGMENTS 1000000ULL

/* For the time until the next transmit sets its own: the rate that a connection
 * has if the limit is lifted before, which no program can raise, until TCP
 * sends and hears of it. It is as high as the size of chunks allows: else a
 * chunk of 64 KB would wait for minutes after a limit of some hundred bytes/s.
 */
static __always_inline void nn_pacing_between(void *ctx,
					      const struct nn_socket *s,
					      __u64 rate)
{
	if (rate < NN_PACING_ONE_SEGMENT)
		rate = NN_PACING_ONE_SEGMENT;
	else if (rate < NN_PACING_TWO_SEGMENTS)
		rate = NN_PACING_TWO_SEGMENTS;
	nn_pacing_set(ctx, s, rate);
}

/* Note what arming changes; returns the callback flags to set. */
static __always_inline __u32 nn_arm(struct nn_socket *s, __u32 on,
				    __u64 own_pacing)
{
	__u32 before = on;

	/* Another netnice, beside this one or before it, limits the connection:
	 * the rate is not the program's own, and would stay for good. */
	if ((on & NN_CALLBACKS) == NN_CALLBACKS) {
		own_pacing = NN_UNLIMITED;
		/* and so are they the former's */
		if (former_release)
			before &= ~NN_CALLBACKS;
	}
	if (!(s->flags & NN_SOCK_OWN_KNOWN))
		s->own_pacing = own_pacing;
	s->flags |= NN_SOCK_ARMED | NN_SOCK_OWN_KNOWN;
	if (!(before & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		s->flags |= NN_SOCK_ADDED_HDR;
	if (!(before & BPF_SOCK_OPS_RTT_CB_FLAG))
		s->flags |= NN_SOCK_ADDED_RTT;
	return on | NN_CALLBACKS;
}

/* No limit holds any more; returns the callback flags to set. */
static __always_inline __u32 nn_disarm(void *ctx, struct nn_socket *s, __u32 on)
{
	__u32 clamp = NN_NO_CLAMP;

	nn_pacing_set(ctx, s, NN_UNLIMITED);
	if (s->clamp_segments)
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_SNDCWND_CLAMP, &clamp,
			       sizeof(clamp));
	if (s->flags & NN_SOCK_ADDED_HDR)
		on &= ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (s->flags & NN_SOCK_ADDED_RTT)
		on &= ~BPF_SOCK_OPS_RTT_CB_FLAG;
	s->flags &= NN_SOCK_LOOPBACK | NN_SOCK_V6 | NN_SOCK_SUBFLOW;
	s->window_begin = 0;
	s->clamp_segments = 0;
	s->limit_bytes_per_sec = 0;
	s->prepaid_bytes = 0;
	s->due_ns = 0;
	return on;
}

/* This records the IP version of the socket's packets, and whether they stay on
 * the machine: to a loopback address, or to the address that they come from.
 * The egress hook knows the latter better, from the first packet on. */
static __always_inline void nn_ends_look(struct nn_socket *s, const __u32 *to,
					 const __u32 *from)
{
	bool v4 = !to[0] && !to[1] && to[2] == bpf_htonl(0xffff);
	bool lo = to[0] == from[0] && to[1] == from[1] && to[2] == from[2] &&
		  to[3] == from[3];

	if (v4)
		lo |= (to[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	else
		lo |= !to[0] && !to[1] && !to[2] && to[3] == bpf_htonl(1);
	/* a socket may have another peer now */
	s->flags &= ~(NN_SOCK_V6 | NN_SOCK_LOOPBACK);
	if (!v4)
		s->flags |= NN_SOCK_V6;
	if (lo)
		s->flags |= NN_SOCK_LOOPBACK;
}

static __always_inline void nn_ends_of(struct nn_socket *s, struct bpf_sock *sk)
{
	__u32 to[4] = {0, 0, bpf_htonl(0xffff)}, from[4] = {};

	from[2] = to[2];
	if (sk->family == AF_INET6) {
		to[0] = sk->dst_ip6[0];
		to[1] = sk->dst_ip6[1];
		to[2] = sk->dst_ip6[2];
		to[3] = sk->dst_ip6[3];
		from[0] = sk->src_ip6[0];
		from[1] = sk->src_ip6[1];
		from[2] = sk->src_ip6[2];
		from[3] = sk->src_ip6[3];
	} else {
		to[3] = sk->dst_ip4;
		from[3] = sk->src_ip4;
	}
	nn_ends_look(s, to, from);
}

static __always_inline void nn_ends_of_common(struct nn_socket *s,
					      struct sock_common *skc)
{
	__u32 to[4] = {0, 0, bpf_htonl(0xffff)}, from[4] = {};

	from[2] = to[2];
	if (skc->skc_family == AF_INET6) {
		BPF_CORE_READ_INTO(&to, skc, skc_v6_daddr);
		BPF_CORE_READ_INTO(&from, skc, skc_v6_rcv_saddr);
	} else {
		to[3] = skc->skc_daddr;
		from[3] = skc->skc_rcv_saddr;
	}
	nn_ends_look(s, to, from);
}

#endif
