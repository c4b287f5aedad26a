/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The socket option TCP_SNDRATE, and others' options that we must not spoil. */
#ifndef NETNICE_OPTION_H
#define NETNICE_OPTION_H

#include "../include/netnice.h"
#include "pacing.h"

/* The send buffer, which the user side may keep small (send_buffer.h): a
 * program that sets it makes it its own again, until that looks. */
static __always_inline void nn_buffer_set(struct bpf_sock *sk, __u8 *val,
					  __u8 *end)
{
	struct nn_buffer *b = bpf_sk_storage_get(&buffers, sk, 0, 0);

	if (b && val + 4 <= end && *(__u32 *)val != b->set)
		b->own_bytes = 0;
}

/* Kernels before 5.18 answer EPERM whatever the reason. */
static __always_inline int nn_option_fail(int err)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_set_retval))
		bpf_set_retval(-err);
	return 0;
}

static __always_inline int nn_option_set(struct bpf_sockopt *ctx)
{
	__u8 *val = ctx->optval, *end = ctx->optval_end;
	struct bpf_sock *sk = ctx->sk;
	struct nn_policy *p;
	struct nn_socket *s;
	__u64 rate;
	__u32 on = 0;

	/* Negative: another program, perhaps a second netnice, has taken it. */
	if (!sk || ctx->optlen < 0)
		return 1;
	if (ctx->level == SOL_SOCKET && ctx->optname == SO_MAX_PACING_RATE) {
		s = bpf_sk_storage_get(&sockets, sk, 0, 0);
		if (!s || !(s->flags & NN_SOCK_ARMED))
			return 1;
		if (ctx->optlen == 8 && val + 8 <= end)
			s->own_pacing = *(__u64 *)val;
		else if (ctx->optlen == 4 && val + 4 <= end)
			s->own_pacing = *(__u32 *)val == ~0U ? NN_UNLIMITED
							     : *(__u32 *)val;
		return 1;
	}
	if (ctx->level == SOL_SOCKET &&
	    (ctx->optname == SO_SNDBUF || ctx->optname == SO_SNDBUFFORCE)) {
		nn_buffer_set(sk, val, end);
		return 1;
	}
	if (ctx->level != IPPROTO_TCP || ctx->optname != TCP_SNDRATE)
		return 1;
	if (sk->protocol != IPPROTO_TCP)
		return 1; /* the kernel's own ENOPROTOOPT */
	if (ctx->optlen == 8 && val + 8 <= end)
		rate = *(__u64 *)val;
	else if (ctx->optlen == 4 && val + 4 <= end)
		rate = *(__u32 *)val;
	else
		return nn_option_fail(EINVAL);
	/* -1 from a program that used a signed type */
	if (rate >> 63 || (ctx->optlen == 4 && rate >> 31 && rate == ~0U))
		return nn_option_fail(EINVAL);
	s = bpf_sk_storage_get(&sockets, sk, 0,
			       rate ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!s) {
		if (rate)
			return nn_option_fail(ENOMEM);
		ctx->optlen = -1;
		return 1;
	}
	s->rate_bytes_per_sec = rate;
	s->rate_clock_ns = 0;
	p = nn_policy();
	/* The egress hook, which holds a connection's first segments, is on the
	 * root for sockets with a rate. The first asks for it. */
	if (rate && p) {
		__u32 kinds = *(volatile __u32 *)&p->kinds;
		__u64 cover = *(volatile __u64 *)&p->cover;

		if (!kinds || cover)
			nn_egress_ask(p, NN_EVENT_RATE, 0, kinds, cover);
	}
	/* An open connection: the next transmit looks at the rate. Before it is
	 * set up, arming waits for that. */
	if (rate && !(s->flags & NN_SOCK_ARMED) &&
	    !bpf_getsockopt(sk, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &on,
			    sizeof(on)) &&
	    sk->state == TCP_ESTABLISHED) {
		__u32 own = ~0U, want;

		bpf_getsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &own,
			       sizeof(own));
		nn_ends_of(s, sk);
		want = nn_arm(s, on, own == ~0U ? NN_UNLIMITED : own);
		s->flags |= NN_SOCK_STARTED | NN_SOCK_ADOPTED;
		s->depart_ns = 0;
		s->limit_bytes_per_sec = rate;
		bpf_setsockopt(sk, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &want,
			       sizeof(want));
		nn_pacing_set(sk, s, rate);
	}
	/* Callbacks cannot be switched on here: see nn_adopt_connection. */
	if (rate && sk->state == TCP_ESTABLISHED)
		nn_socket_ask(s);
	ctx->optlen = -1;
	return 1;
}

static __always_inline int nn_option_get(struct bpf_sockopt *ctx)
{
	__u8 *val = ctx->optval, *end = ctx->optval_end;
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	__u64 v;

	if (!sk)
		return 1;
	if (ctx->level == SOL_SOCKET && ctx->optname == SO_MAX_PACING_RATE) {
		s = bpf_sk_storage_get(&sockets, sk, 0, 0);
		if (!s || !(s->flags & NN_SOCK_ARMED) || ctx->retval)
			return 1;
		v = s->own_pacing;
		if (ctx->optlen == 8 && val + 8 <= end)
			*(__u64 *)val = v;
		else if (ctx->optlen == 4 && val + 4 <= end)
			*(__u32 *)val = nn_pacing_u32(v);
		return 1;
	}
	if (ctx->level == SOL_SOCKET && ctx->optname == SO_SNDBUF) {
		struct nn_buffer *b = bpf_sk_storage_get(&buffers, sk, 0, 0);

		if (b && b->own_bytes && !ctx->retval && val + 4 <= end)
			*(__u32 *)val = b->own_bytes;
		return 1;
	}
	if (ctx->level != IPPROTO_TCP || ctx->optname != TCP_SNDRATE ||
	    sk->protocol != IPPROTO_TCP)
		return 1;
	if (!ctx->retval)
		return 1; /* a second netnice's */
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	v = s ? s->rate_bytes_per_sec : 0;
	if (ctx->optlen >= 8 && val + 8 <= end) {
		*(__u64 *)val = v;
		ctx->optlen = 8;
	} else if (ctx->optlen >= 4 && val + 4 <= end) {
		*(__u32 *)val = v > 0xffffffffULL ? 0xffffffffU : v;
		ctx->optlen = 4;
	} else {
		return nn_option_fail(EINVAL);
	}
	ctx->retval = 0;
	return 1;
}

#endif
