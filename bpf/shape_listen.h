/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file sets the window fields of the handshake, which TCP cannot take
 * back: the bytes that a limited program's sender may send at first, and the
 * unit of the window field. A connection request is a request socket. A BPF
 * program sees only its addresses, so listeners are stored by address.
 */
#ifndef NETNICE_SHAPE_LISTEN_H
#define NETNICE_SHAPE_LISTEN_H

#include <stddef.h>
#include "shape_window.h"

/* Windows of up to 64 MB, in units of 1 KB: enough for whatever follows when
 * the limit has gone, and little beside two segments. */
#define NN_UNIT_SCALE 10
#define NN_UNIT_MOST  14 /* TCP's maximum */
/* A higher limit may have larger units, 80 us of it: 64 connections then have
 * two units each. */
#define NN_UNIT_PER_S 12500
#define NN_CLAMP_NONE (0xffffU << NN_UNIT_MOST)
#define NN_FIRST_MSS  1460
/* The round trip is not known yet, and at a distance a sender starts with ten
 * segments. The queue that this assumed round trip allows at first is gone
 * after the same time. */
#define NN_FIRST_US 100000U

struct netns_ipv4 {
	int sysctl_tcp_rmem[3];
} __core;

struct net___listen {
	__u64 net_cookie;
	struct netns_ipv4 ipv4;
} __core;

/* The largest window that has units as small as suit the limits; 0 without any.
 */
static __always_inline __u32 nn_unit_clamp(const struct nn_hop *path)
{
	__u64 least = 0, unit;
	__u32 scale = NN_UNIT_SCALE;

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path[i].node)
			break;
		least = nn_lower(least, nn_inbound_rate(&path[i]));
	}
	if (!least)
		return 0;
	unit = least / NN_UNIT_PER_S;
	for (__u32 i = NN_UNIT_SCALE; i < NN_UNIT_MOST; i++)
		if (unit >> (i + 1))
			scale = i + 1;
	return 0xffffU << scale;
}

/* A limited program connects: its SYN says the unit. */
static __always_inline void nn_connects(struct bpf_sock_ops *ctx)
{
	const struct tcp_sock___receive *rx;
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	__u32 clamp;

	s = sk ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
	nn_port_of(s, ctx->local_port);
	clamp = s ? nn_unit_clamp(s->path) : 0;
	rx = clamp ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	if (!rx || (rx->window_clamp && rx->window_clamp <= clamp))
		return;
	bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp));
}

/* nn_listener_clamp sets the window unit of the connections that a listener
 * accepts. Where buffers are so small that units are small as well, the
 * listener stays as it is: the earlier state, no clamp, cannot be set again on
 * a listener, only the largest clamp. */
static __always_inline void nn_listener_clamp(void *ctx, struct tcp_sock *tp,
					      const struct nn_hop *path)
{
	const struct tcp_sock___receive *rx = (void *)tp;
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct net___listen *net = (void *)sk->__sk_common.skc_net.net;
	struct nn_receiver *r = bpf_sk_storage_get(&receivers, sk, 0, 0);
	__u32 now = rx->window_clamp, own = now, clamp = nn_unit_clamp(path);

	if (r && r->clamp && now == r->clamp)
		own = r->own_clamp;
	if (own && own <= clamp)
		clamp = 0;
	if (net->ipv4.sysctl_tcp_rmem[2] <= (int)clamp)
		clamp = 0;
	if (!clamp) {
		if (!r || !r->clamp)
			return;
		r->clamp = 0;
		clamp = own ? own : NN_CLAMP_NONE;
	} else {
		r = bpf_sk_storage_get(&receivers, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
		if (!r) {
			nn_shape_fault(NN_SHAPE_FAULT_WINDOW);
			return;
		}
		r->own_clamp = own;
		r->clamp = clamp;
	}
	if (clamp != now)
		bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &clamp,
			       sizeof(clamp));
}

/* Somebody listens. Those that nothing limits are kept, too: they may have one
 * address of a port, and a limited program the others. */
static __always_inline void nn_listens(void *ctx, struct tcp_sock *tp,
				       const struct nn_socket *s)
{
	struct sock_common *skc = &tp->inet_conn.icsk_inet.sk.__sk_common;
	struct net___listen *net = (void *)skc->skc_net.net;
	struct nn_listening key = {};
	struct nn_path path = {};

	key.netns_cookie = net->net_cookie;
	key.family = skc->skc_family;
	key.port = skc->skc_num;
	if (key.family == AF_INET6)
		BPF_CORE_READ_INTO(&key.address, skc, skc_v6_rcv_saddr);
	else
		key.address[3] = skc->skc_rcv_saddr;
	for (__u32 i = 0; s && i < NN_PATH_MAX; i++)
		path.hops[i] = s->path[i];
	if (bpf_map_update_elem(&listeners, &key, &path, BPF_ANY))
		nn_shape_fault(NN_SHAPE_FAULT_WINDOW);
	nn_listener_clamp(ctx, tp, path.hops);
}

static __always_inline void nn_listen_called(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct nn_socket *s;
	struct tcp_sock *tp;

	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s)
		s = nn_subflow_here(ctx, sk);
	if (!s && nn_stateless_any())
		s = nn_stateless_look(sk);
	nn_port_of(s, ctx->local_port); /* accepted sockets share it */
	nn_listens(ctx, tp, s);
}

/* A word of the context, by one load: the compiler would else load from a
 * pointer into it, which the verifier refuses. */
#define NN_ASKED_WORD(ctx, field)                                              \
	({                                                                     \
		__u32 word;                                                    \
		asm volatile(                                                  \
			"%[w] = *(u32 *)(%[c] + %[o])"                         \
			: [w] "=r"(word)                                       \
			: [c] "r"(ctx), [o] "i"(offsetof(struct bpf_sock_ops,  \
							 field)));             \
		word;                                                          \
	})

/* Traffic over lo is not limited. For an IPv4 peer of an IPv6 listener the IPv6
 * addresses carry no information. */
static __always_inline bool nn_asked_of_itself(const struct bpf_sock_ops *ctx,
					       const __u32 local[4])
{
	if (NN_ASKED_WORD(ctx, local_ip4) != NN_ASKED_WORD(ctx, remote_ip4))
		return false;
	return ctx->family == AF_INET ||
	       (local[0] == NN_ASKED_WORD(ctx, remote_ip6[0]) &&
		local[1] == NN_ASKED_WORD(ctx, remote_ip6[1]) &&
		local[2] == NN_ASKED_WORD(ctx, remote_ip6[2]) &&
		local[3] == NN_ASKED_WORD(ctx, remote_ip6[3]));
}

/* The address of a connection's listener, if that has one of its own. */
static __always_inline void nn_listening_here(struct bpf_sock_ops *ctx,
					      struct nn_listening *key)
{
	key->netns_cookie = bpf_get_netns_cookie(ctx);
	key->family = ctx->family;
	key->port = ctx->local_port;
	if (key->family == AF_INET6) {
		key->address[0] = NN_ASKED_WORD(ctx, local_ip6[0]);
		key->address[1] = NN_ASKED_WORD(ctx, local_ip6[1]);
		key->address[2] = NN_ASKED_WORD(ctx, local_ip6[2]);
		key->address[3] = NN_ASKED_WORD(ctx, local_ip6[3]);
	} else {
		key->address[3] = NN_ASKED_WORD(ctx, local_ip4);
	}
}

/* The path of the listener at such an address, or at any. */
static __always_inline struct nn_path *nn_listener_at(struct nn_listening *key)
{
	struct nn_path *path = bpf_map_lookup_elem(&listeners, key);

	if (path)
		return path;
	__builtin_memset(key->address, 0, sizeof(key->address));
	return bpf_map_lookup_elem(&listeners, key);
}

/* A connection that a listener without room has accepted belongs to whoever the
 * listener does, also once that is closed. */
static __always_inline void nn_accepted(struct bpf_sock_ops *ctx)
{
	struct nn_listening key = {};
	struct bpf_sock *sk = ctx->sk;
	struct nn_path *path;
	struct nn_socket *s;

	if (!sk || !nn_stateless_any() ||
	    bpf_sk_storage_get(&sockets, sk, 0, 0))
		return;
	nn_listening_here(ctx, &key);
	path = nn_listener_at(&key);
	if (!path || !path->hops[0].node)
		return;
	bpf_get_socket_cookie(ctx);
	s = nn_stateless_make(sk);
	if (!s)
		return;
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		s->path[i] = path->hops[i];
}

/* The window in the answer to a SYN, in segments. */
static __always_inline int nn_window_asked(struct bpf_sock_ops *ctx)
{
	__u32 span = nn_span_now(bpf_ktime_get_ns());
	struct nn_listening key = {};
	struct nn_path *path;
	__u64 share;
	bool itself;

	nn_listening_here(ctx, &key);
	itself = nn_asked_of_itself(ctx, key.address);
	path = nn_listener_at(&key);
	if (!path || !path->hops[0].node || itself)
		return -1;
	share = nn_inbound_share_asked(path, span);
	if (!share)
		return -1;
	return nn_window_for(share, NN_FIRST_US, NN_FIRST_MSS, true) /
	       NN_FIRST_MSS;
}

/* Other BPF programs may answer before this one. The lower window wins, and a
 * program without a window gives no answer. */
static __always_inline void nn_window_answer(struct bpf_sock_ops *ctx,
					     int segments)
{
	int before = ctx->reply;

	if (segments > 0 && (before <= 0 || segments < before))
		ctx->reply = segments;
}

/* The state of a listener that has no room for its own, or of the MPTCP socket
 * above it: see nn_subflow_adopt. */
static __always_inline struct nn_socket *nn_listener_stateless(
	struct tcp_sock *tp)
{
	struct socket *file = tp->inet_conn.icsk_inet.sk.sk_socket;
	struct sock *msk = file ? file->sk : NULL;
	struct nn_socket *s = nn_stateless_look(tp);

	if (s || !msk || msk->sk_protocol != IPPROTO_MPTCP)
		return s;
	return nn_stateless_look(msk);
}

/* An open connection whose callbacks do not run, or whose limit has gone. True
 * if no callback will keep its window, so that it has to be visited again. */
static __always_inline bool nn_window_visit(struct sock_common *skc)
{
	struct nn_receiver *r;
	struct nn_socket *s;
	struct tcp_sock *tp;

	if (skc->skc_state == TCP_TIME_WAIT ||
	    skc->skc_state == TCP_NEW_SYN_RECV || skc->skc_state == TCP_CLOSE)
		return false;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return false;
	s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0, 0);
	if (skc->skc_state == TCP_LISTEN) {
		if (!s && nn_stateless_any())
			s = nn_listener_stateless(tp);
		nn_listens(skc, tp, s);
		return false;
	}
	if (!s)
		return false;
	nn_window_keep(skc, (struct sock *)tp, tp, s, NN_WINDOW_VISIT);
	r = bpf_sk_storage_get(&receivers, (struct sock *)tp, 0, 0);
	return r && r->clamp &&
	       !(tp->bpf_sock_ops_cb_flags &
		 BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

#endif
