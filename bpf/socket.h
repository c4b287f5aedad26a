/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sockets that are limited by themselves in ways for which a clock is not
 * enough (what they receive, and datagrams that they send) have a node of their
 * own, with all that nodes have: the first of their path. The user side makes
 * it, by the socket's cookie.
 */
#ifndef NETNICE_SOCKET_H
#define NETNICE_SOCKET_H

#include "identity.h"

#define NN_RECEIVE_BEGIN_PART 50 /* of a second's: 20 ms */
#define NN_RECEIVE_BEGIN_US   (1000000 / NN_RECEIVE_BEGIN_PART)
#define NN_RECEIVE_MSS	      1460

/* The bytes that a sender may have in flight until the socket has its node. The
 * first windows of TCP are many seconds of a low rate. */
static __always_inline __u32 nn_receive_window(const struct nn_socket *s)
{
	__u64 window = s->receive_bytes_per_sec / NN_RECEIVE_BEGIN_PART;

	if (window < 2 * NN_RECEIVE_MSS)
		return 2 * NN_RECEIVE_MSS;
	return window < 1U << 30 ? window : 1U << 30;
}

/* In segments, in its SYN. Others may have answered: the least holds. */
static __always_inline void nn_receive_offer(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	int segments, before = ctx->reply;

	s = sk ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
	if (!s || !s->receive_bytes_per_sec)
		return;
	segments = nn_receive_window(s) / NN_RECEIVE_MSS;
	if (before <= 0 || segments < before)
		ctx->reply = segments;
}

/* A connection is set up: nn_window_keep goes on from here. */
static __always_inline void nn_receive_begin(void *ctx, struct nn_socket *s,
					     struct tcp_sock *tp)
{
	__u32 window = nn_receive_window(s);

	s->window_before = tp->window_clamp;
	if (window >= s->window_before)
		return;
	bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window));
	s->window_begin = tp->window_clamp;
}

/* TCP's own tuning raises what was set as soon as the program reads. Not over
 * distances where the window would hold it below its rate. */
static __always_inline void nn_receive_keep(void *ctx, struct nn_socket *s,
					    struct tcp_sock *tp)
{
	__u32 window = s->window_begin;

	if (!window || !s->receive_bytes_per_sec || s->own.node ||
	    tp->window_clamp <= window ||
	    tp->rtt_min.s[0].v > NN_RECEIVE_BEGIN_US)
		return;
	bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window));
}

/* Give the socket another node of its own, or none. A program on another CPU
 * may see a node twice meanwhile, for one packet. */
static __always_inline void nn_own_put(struct nn_socket *s,
				       const struct nn_hop *own)
{
	bool had = s->own.node && s->path[0].node == s->own.node;

	s->own = *own;
	if (had && own->node) {
		s->path[0] = *own;
	} else if (had) {
		for (int i = 0; i < NN_PATH_MAX - 1; i++)
			s->path[i] = s->path[i + 1];
		s->path[NN_PATH_MAX - 1].node = 0;
	} else if (own->node && !s->path[NN_PATH_MAX - 1].node) {
		for (int i = NN_PATH_MAX - 1; i > 0; i--)
			s->path[i] = s->path[i - 1];
		s->path[0] = *own;
	}
}

/* An accepted socket begins with its listener's node, but has another cookie.
 */
static __always_inline void nn_own_assign(struct sock *sk, struct nn_socket *s)
{
	struct nn_hop none = {}, *own;
	__u64 cookie;

	if (!s->own.node && !s->rate_bytes_per_sec &&
	    !s->receive_bytes_per_sec && !s->reserve_asked)
		return;
	if (s->reserve_asked)
		nn_leaves_by(s, sk); /* find its link */
	cookie = bpf_get_socket_cookie(sk);
	own = bpf_map_lookup_elem(&socket_nodes, &cookie);
	if (!own)
		own = &none;
	if (s->own.node == own->node && s->own.generation == own->generation)
		return;
	nn_own_put(s, own);
	nn_port_of(s, sk->__sk_common.skc_num);
}

#endif
