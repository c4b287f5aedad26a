/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adoption of connections that were there before the limit. The user side runs
 * an iterator over all connections after each change of the set of nodes. Their
 * paths are made before that, where their files are (adopt_file.h).
 */
#ifndef NETNICE_ADOPT_H
#define NETNICE_ADOPT_H

#include "adopt_unowned.h"
#include "pacing.h"

/* An argument of the iterator, set before each run. */
__u32 release_rates; /* sockets lose their own rates, too */

/* Rates of connections whose callbacks cannot be switched on, bytes/s, by
 * cookie: the user side divides limits among them, once a second. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} fixed_rates SEC(".maps");

/* A connection whose callbacks cannot be switched on gets the part of its
 * limits that the user side has found; until then an equal part of each on its
 * path, among as many as the user side has counted. */
static __noinline __u64 nn_static_rate(struct nn_socket *s, __u32 loopback,
				       __u64 cookie)
{
	__u64 least = s->rate_bytes_per_sec;
	__u64 *fixed = bpf_map_lookup_elem(&fixed_rates, &cookie);

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_node *n;
		__u64 rate;

		if (!s->path[i].node)
			break;
		n = nn_node_get(s->path[i].node, s->path[i].generation);
		if (!n || (loopback && !(n->flags & NN_NODE_LOOPBACK)))
			continue;
		for (__u32 d = NN_UP; d <= NN_TOTAL; d += NN_TOTAL - NN_UP) {
			rate = nn_ceiling(n, s->path[i].node, d);
			if (rate && n->static_sockets > 1 && !fixed)
				rate /= n->static_sockets;
			least = nn_lower(least, rate);
		}
	}
	return fixed ? nn_lower(least, *fixed) : least;
}

/* A subflow that was there before the limit. No helper leads from it to its
 * MPTCP socket here, but both hang on the same struct socket as long as the
 * program has it open, and closing takes the lock that the iterator holds. */
static __always_inline struct nn_socket *nn_subflow_adopt(struct tcp_sock *tp,
							  struct nn_socket *s)
{
	struct socket *file = tp->inet_conn.icsk_inet.sk.sk_socket;
	struct sock *msk = file ? file->sk : NULL;
	struct nn_socket *from;

	if (!msk || msk->sk_protocol != IPPROTO_MPTCP)
		return s;
	from = nn_state_of(msk);
	if (!from)
		return s;
	if (!s)
		s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		bpf_get_socket_cookie((struct sock *)tp);
		nn_subflow_stateless(tp, from);
		return NULL;
	}
	/* clear it first: a later change asks for this iterator again */
	from->flags |= NN_SOCK_SUBFLOWS;
	from->flags &= ~(NN_SOCK_CHANGED | NN_SOCK_ASKED);
	nn_subflow_assign(s, from);
	nn_peer_found(s, (struct sock *)tp);
	return s;
}

/* The listener below an MPTCP one, which programs make without asking for it.
 * Accepted sockets begin as its copy, and most of them are plain TCP. */
static __always_inline void nn_sublistener_adopt(struct tcp_sock *tp)
{
	struct nn_socket *s;

	if (!bpf_core_field_exists(tp->is_mptcp) || !tp->is_mptcp)
		return;
	s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0, 0);
	s = nn_subflow_adopt(tp, s);
	if (s)
		s->flags &= ~NN_SOCK_SUBFLOW;
}

/* A chunk may go back to TCP while nothing else of the connection is in flight.
 * It then waits for a timer of TCP's, 0.2 s or more: let TCP try now. Setting
 * TCP_NODELAY does that; kernels that refuse it here (before 6.0) wait. */
static __always_inline void nn_push(struct sock_common *skc,
				    const struct tcp_sock *tp)
{
	__u32 on = 1, off = 0, nodelay = 0;

	if (tp->write_seq == tp->snd_nxt || tp->snd_nxt != tp->snd_una)
		return;
	if (bpf_getsockopt(skc, SOL_TCP, TCP_NODELAY, &nodelay,
			   sizeof(nodelay)))
		return;
	bpf_setsockopt(skc, SOL_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!nodelay)
		bpf_setsockopt(skc, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
}

/* Not every entry of the kernel's table is a connection. Others are armed once
 * they are set up. */
static __always_inline bool nn_adoptable(const struct sock_common *skc)
{
	return skc->skc_state != TCP_TIME_WAIT &&
	       skc->skc_state != TCP_NEW_SYN_RECV &&
	       skc->skc_state != TCP_CLOSE && skc->skc_state != TCP_SYN_SENT;
}

/* Under the socket's lock: arm what a limit holds for, release what none does.
 * Kernels before 6.12 cannot switch callbacks on here: there the connection
 * gets a fixed part of the limit as its pacing rate. Not inline: its stack is
 * not below that of nn_adopt_nobodys then. */
static __noinline void nn_adopt_connection(struct sock_common *skc)
{
	struct nn_socket *s;
	struct tcp_sock *tp;
	struct nn_transmit x = {};
	__u32 on, want;

	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return;
	if (skc->skc_state == TCP_LISTEN) {
		nn_sublistener_adopt(tp);
		return;
	}
	s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0, 0);
	if (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp)
		s = nn_subflow_adopt(tp, s);
	if (!s)
		return;
	nn_leaves_by(s, (struct sock *)tp);
	nn_port_of(s, skc->skc_num);
	if (release_rates)
		s->rate_bytes_per_sec = s->receive_bytes_per_sec = 0;
	on = tp->bpf_sock_ops_cb_flags;
	if (!nn_path_live(s)) {
		if (!(s->flags & NN_SOCK_ARMED))
			return;
		want = nn_disarm(skc, s, on);
		bpf_setsockopt(skc, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &want,
			       sizeof(want));
		nn_push(skc, tp);
		return;
	}
	x.now_ns = bpf_ktime_get_ns();
	x.loopback = s->flags & NN_SOCK_LOOPBACK;
	if (s->flags & NN_SOCK_ARMED && (on & NN_CALLBACKS) == NN_CALLBACKS) {
		if (s->due_ns > x.now_ns)
			nn_held_sooner(s, &x);
		if (s->due_ns && s->due_ns <= x.now_ns)
			nn_push(skc, tp);
		return;
	}
	nn_ends_of_common(s, skc);
	nn_path_walk(s, &x, NN_ASK);
	want = nn_arm(s, on, tp->inet_conn.icsk_inet.sk.sk_max_pacing_rate);
	s->flags |= NN_SOCK_STARTED | NN_SOCK_ADOPTED;
	s->flags &= ~(NN_SOCK_ASKED | NN_SOCK_STATIC);
	s->depart_ns = tp->tcp_wstamp_ns;
	s->limit_bytes_per_sec = x.limit;
	if (bpf_setsockopt(skc, SOL_TCP, NN_TCP_BPF_CB_FLAGS, &want,
			   sizeof(want)) &&
	    (on & NN_CALLBACKS) != NN_CALLBACKS) {
		__u64 rate = nn_static_rate(
			s, x.loopback,
			bpf_get_socket_cookie((struct sock *)tp));

		s->flags |= NN_SOCK_STATIC;
		nn_pacing_set(skc, s, rate ? rate : NN_UNLIMITED);
		return;
	}
	if (x.limit == NN_UNLIMITED)
		return;
	nn_pacing_between(skc, s, x.limit);
	nn_clamp(skc, s, tp);
	nn_push(skc, tp);
}

#endif
