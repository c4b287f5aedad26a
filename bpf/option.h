/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The socket options TCP_SNDRATE and TCP_RCVRATE, and others' options that we
 * must not spoil. */
#ifndef NETNICE_OPTION_H
#define NETNICE_OPTION_H

#include "../include/netnice.h"
#include "pacing.h"
#include "request.h"

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

/* A daemon that leaves what it was asked unread for so long was killed. */
#define NN_DAEMON_SILENT_NS 5000000000ULL
#define NN_RB_CONSUMED	    2 /* BPF_RB_CONS_POS */

struct nn_silence {
	__u64 read;	/* up to where the daemon had read */
	__u64 since_ns; /* when that was seen first, with more to read */
};

struct nn_silence events_silence, requests_silence;

static __always_inline bool nn_daemon_there(const struct nn_policy *p,
					    void *ring,
					    struct nn_silence *silence)
{
	__u64 now_ns = bpf_ktime_get_ns(), read;

	if (!p->daemon)
		return false;
	if (!bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA)) {
		silence->since_ns = 0;
		return true;
	}
	read = bpf_ringbuf_query(ring, NN_RB_CONSUMED);
	if (!silence->since_ns || read != silence->read) {
		silence->read = read;
		silence->since_ns = now_ns;
	}
	return now_ns - silence->since_ns < NN_DAEMON_SILENT_NS;
}

/* The socket has the protocol to which the option belongs. */
static __always_inline bool nn_option_level(const struct bpf_sockopt *ctx,
					    const struct bpf_sock *sk)
{
	if (ctx->level == IPPROTO_TCP)
		return sk->protocol == IPPROTO_TCP ||
		       sk->protocol == IPPROTO_MPTCP;
	return ctx->level == IPPROTO_UDP && sk->protocol == IPPROTO_UDP;
}

/* Is it one of netnice's options, on a socket that can have it? For other
 * sockets the kernel itself returns the error. */
static __always_inline bool nn_option_ours(const struct bpf_sockopt *ctx,
					   const struct bpf_sock *sk)
{
	if (ctx->optname != TCP_SNDRATE && ctx->optname != TCP_RCVRATE)
		return false;
	return nn_option_level(ctx, sk);
}

/* A program's own SO_MAX_PACING_RATE holds beside ours. */
static __always_inline void nn_option_pacing(struct bpf_sockopt *ctx,
					     struct bpf_sock *sk)
{
	__u8 *val = ctx->optval, *end = ctx->optval_end;
	struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);

	if (!s || !(s->flags & NN_SOCK_ARMED))
		return;
	if (ctx->optlen == 8 && val + 8 <= end)
		s->own_pacing = *(__u64 *)val;
	else if (ctx->optlen == 4 && val + 4 <= end)
		s->own_pacing =
			*(__u32 *)val == ~0U ? NN_UNLIMITED : *(__u32 *)val;
}

/* The rate of an open connection: the next transmit looks at it. Before it is
 * set up, arming waits for that. */
static __always_inline void nn_option_arm(struct bpf_sock *sk,
					  struct nn_socket *s)
{
	__u32 on = 0, own = ~0U, want;
	__u64 rate = s->rate_bytes_per_sec;
	long failed;

	if (sk->state != TCP_ESTABLISHED || sk->protocol != IPPROTO_TCP)
		return;
	if (!(s->flags & NN_SOCK_ARMED) &&
	    !bpf_getsockopt(sk, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &on,
			    sizeof(on))) {
		bpf_getsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &own,
			       sizeof(own));
		nn_ends_of(s, sk);
		want = nn_arm(s, on, own == ~0U ? NN_UNLIMITED : own);
		s->flags |= NN_SOCK_STARTED | NN_SOCK_ADOPTED;
		s->depart_ns = 0;
		s->limit_bytes_per_sec = rate;
		failed = bpf_setsockopt(sk, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &want,
					sizeof(want));
		if (rate && failed)
			nn_pacing_set(sk, s, rate);
		else if (rate)
			nn_pacing_between(sk, s, rate);
	}
	/* Callbacks may not be switched on here: see nn_adopt_connection. */
	nn_socket_ask(s);
}

/* The caller counts as the socket's user, as long as no other user is known. */
static __always_inline void nn_option_user(struct nn_policy *p,
					   struct nn_socket *s)
{
	struct nn_who w = {};

	if (s->tgid)
		return;
	nn_identify(bpf_get_current_task_btf(), p, &w);
	s->child = w.child;
	s->start_boottime_ns = w.start_boottime_ns;
	s->cgroup = w.cgroup;
	s->uid = w.uid;
	s->tgid = w.tgid;
}

/* The value of our option; false: it is none. */
static __always_inline bool nn_option_rate(struct bpf_sockopt *ctx, __u64 *rate)
{
	__u8 *val = ctx->optval, *end = ctx->optval_end;

	if (ctx->optlen == 8 && val + 8 <= end)
		*rate = *(__u64 *)val;
	else if (ctx->optlen == 4 && val + 4 <= end)
		*rate = *(__u32 *)val;
	else
		return false;
	/* -1 from a program that used a signed type */
	return !(*rate >> 63) && !(ctx->optlen == 4 && *rate == ~0U);
}

/* The subflows of an MPTCP socket that listens, or is open, and so what it
 * accepts: no helper leads to them here. The daemon's iterator finds them, in
 * some milliseconds as a rule. */
static __always_inline void nn_option_subflows(struct bpf_sock *sk,
					       struct nn_socket *s)
{
	__u32 event = NN_EVENT_ARM;

	if (sk->protocol != IPPROTO_MPTCP ||
	    (sk->state != TCP_LISTEN && sk->state != TCP_ESTABLISHED))
		return;
	s->flags |= NN_SOCK_CHANGED;
	if (bpf_ringbuf_output(&events, &event, sizeof(event),
			       BPF_RB_FORCE_WAKEUP))
		nn_fault(NN_FAULT_EVENT_LOST);
}

/* NETNICE_LIMIT: see request.h. */
static __always_inline bool nn_option_asks(const struct bpf_sockopt *ctx,
					   const struct bpf_sock *sk)
{
	return ctx->level == IPPROTO_TCP && ctx->optname == NETNICE_LIMIT &&
	       (sk->protocol == IPPROTO_TCP || sk->protocol == IPPROTO_MPTCP);
}

static __always_inline int nn_option_ask(struct bpf_sockopt *ctx,
					 struct bpf_sock *sk,
					 const struct nn_policy *p)
{
	struct nn_limit_asked *asked = ctx->optval;
	int err = EINVAL;

	if (ctx->optlen == sizeof(*asked) &&
	    (void *)(asked + 1) <= ctx->optval_end)
		err = nn_daemon_there(p, &requests, &requests_silence)
			      ? nn_request_put(sk, asked)
			      : EOPNOTSUPP;
	if (err)
		return nn_option_fail(err);
	ctx->optlen = -1;
	return 1;
}

static __always_inline int nn_option_answer(struct bpf_sockopt *ctx,
					    struct bpf_sock *sk)
{
	struct nn_limit_asked *asked = ctx->optval;
	int err = EINVAL;

	if (!ctx->retval)
		return 1; /* a second netnice's */
	if (ctx->optlen >= (int)sizeof(*asked) &&
	    (void *)(asked + 1) <= ctx->optval_end)
		err = nn_request_get(sk, asked);
	if (err)
		return nn_option_fail(err);
	ctx->optlen = sizeof(*asked);
	/* the verifier takes no store of both at once */
	asm volatile("" ::: "memory");
	ctx->retval = 0;
	return 1;
}

/* NETNICE_RESERVE: a slice of the link's time for this socket. */
static __always_inline bool nn_option_reserves(const struct bpf_sockopt *ctx,
					       const struct bpf_sock *sk)
{
	return ctx->optname == NETNICE_RESERVE && nn_option_level(ctx, sk);
}

static __always_inline int nn_option_reserve(struct bpf_sockopt *ctx,
					     struct bpf_sock *sk,
					     struct nn_policy *p)
{
	struct nn_reservation_asked *a = ctx->optval;
	struct nn_socket *s;
	int err;

	if (ctx->optlen != sizeof(*a) || (void *)(a + 1) > ctx->optval_end)
		return nn_option_fail(EINVAL);
	/* its subflows send */
	if (sk->protocol == IPPROTO_MPTCP ||
	    !nn_daemon_there(p, &requests, &requests_silence))
		return nn_option_fail(EOPNOTSUPP);
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return nn_option_fail(ENOMEM);
	nn_option_user(p, s);
	err = nn_reserve_put(sk, a, s);
	if (err)
		return nn_option_fail(err);
	ctx->optlen = -1;
	return 1;
}

static __always_inline int nn_option_reserved(struct bpf_sockopt *ctx,
					      struct bpf_sock *sk)
{
	struct nn_reservation_asked *a = ctx->optval;
	int err = EINVAL;

	if (!ctx->retval)
		return 1; /* a second netnice's */
	if (ctx->optlen >= (int)sizeof(*a) &&
	    (void *)(a + 1) <= ctx->optval_end)
		err = nn_reserve_get(sk, a);
	if (err)
		return nn_option_fail(err);
	ctx->optlen = sizeof(*a);
	/* as above */
	asm volatile("" ::: "memory");
	ctx->retval = 0;
	return 1;
}

static __always_inline int nn_option_set(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	__u64 rate = 0, cover, before;
	struct nn_policy *p;
	struct nn_socket *s;
	bool receive, node;
	__u32 kinds;

	/* Negative: another program, perhaps a second netnice, has taken it. */
	if (!sk || ctx->optlen < 0)
		return 1;
	if (ctx->level == SOL_SOCKET && ctx->optname == SO_MAX_PACING_RATE) {
		nn_option_pacing(ctx, sk);
		return 1;
	}
	if (ctx->level == SOL_SOCKET &&
	    (ctx->optname == SO_SNDBUF || ctx->optname == SO_SNDBUFFORCE)) {
		nn_buffer_set(sk, ctx->optval, ctx->optval_end);
		return 1;
	}
	if (!nn_option_ours(ctx, sk) && !nn_option_asks(ctx, sk) &&
	    !nn_option_reserves(ctx, sk))
		return 1; /* the kernel's own ENOPROTOOPT */
	p = nn_policy();
	if (!p)
		return 1;
	if (nn_option_asks(ctx, sk))
		return nn_option_ask(ctx, sk, p);
	if (nn_option_reserves(ctx, sk))
		return nn_option_reserve(ctx, sk, p);
	if (!nn_option_rate(ctx, &rate))
		return nn_option_fail(EINVAL);
	receive = ctx->optname == TCP_RCVRATE;
	/* for which the daemon has to make a node: see socket.h */
	node = receive || sk->protocol == IPPROTO_UDP;
	kinds = *(volatile __u32 *)&p->kinds;
	cover = *(volatile __u64 *)&p->cover;
	if (rate && node && !nn_daemon_there(p, &events, &events_silence) &&
	    (receive || !kinds || cover))
		return nn_option_fail(EOPNOTSUPP);
	s = bpf_sk_storage_get(&sockets, sk, 0,
			       rate ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!s) {
		if (rate)
			return nn_option_fail(ENOMEM);
		ctx->optlen = -1;
		return 1;
	}
	if (receive) {
		before = s->receive_bytes_per_sec;
		s->receive_bytes_per_sec = rate;
	} else {
		before = s->rate_bytes_per_sec;
		s->rate_bytes_per_sec = rate;
		s->rate_clock_ns = 0;
		s->flags &= ~NN_SOCK_PHASED;
	}
	if (rate)
		nn_option_user(p, s);
	/* The egress hook, which holds a connection's first segments, is on the
	 * root for sockets with a rate. The first asks for it. */
	if ((rate && !receive && (!kinds || cover)) || (node && rate != before))
		nn_egress_event(NN_EVENT_RATE, 0);
	if (rate)
		nn_option_arm(sk, s);
	nn_option_subflows(sk, s);
	ctx->optlen = -1;
	return 1;
}

/* The listener below an MPTCP one, which programs make without asking for it:
 * accepted sockets begin as its copy. */
static __always_inline void nn_option_listens(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;

	if (!sk || bpf_sk_storage_get(&sockets, sk, 0, 0))
		return;
	s = nn_subflow(sk);
	if (s)
		s->flags &= ~NN_SOCK_SUBFLOW;
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
	if (nn_option_asks(ctx, sk))
		return nn_option_answer(ctx, sk);
	if (nn_option_reserves(ctx, sk))
		return nn_option_reserved(ctx, sk);
	if (!nn_option_ours(ctx, sk))
		return 1;
	if (!ctx->retval)
		return 1; /* a second netnice's */
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	v = !s				  ? 0
	    : ctx->optname == TCP_RCVRATE ? s->receive_bytes_per_sec
					  : s->rate_bytes_per_sec;
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
