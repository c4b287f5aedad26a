/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the process that sends by an MPTCP socket. The kernel sends
 * on its subflows, so the hook at TCP's sends does not see the call.
 */
#ifndef NETNICE_MPTCP_H
#define NETNICE_MPTCP_H

#include "inside.h"
#include "sent_by.h"

/* A call that sends nothing of its own. At its end it sends the data that
 * another call had to leave to it. No call that sends has one of these numbers,
 * not even in 32-bit programs. */
static __always_inline bool nn_call_sends_not(void)
{
	void *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 call = NN_CALL_NUMBER(regs);

	if (bpf_core_field_exists(struct pt_regs___x86, orig_ax)) {
		switch (call) {
		case 0:	  /* read */
		case 16:  /* ioctl */
		case 19:  /* readv */
		case 45:  /* recvfrom */
		case 47:  /* recvmsg */
		case 54:  /* setsockopt */
		case 55:  /* getsockopt */
		case 299: /* recvmmsg */
			return true;
		}
	} else if (bpf_core_field_exists(struct pt_regs___arm64, syscallno)) {
		switch (call) {
		case 29:  /* ioctl */
		case 63:  /* read */
		case 65:  /* readv */
		case 207: /* recvfrom */
		case 208: /* setsockopt */
		case 209: /* getsockopt */
		case 212: /* recvmsg */
		case 243: /* recvmmsg */
			return true;
		}
	}
	return false;
}

/* The calling process sends by an MPTCP socket, or has it by a call that may
 * send nothing. Armed subflows follow by themselves as they send
 * (nn_subflow_follow), the daemon arms others. */
static __always_inline struct nn_socket *nn_mptcp_used(struct sock *msk,
						       bool may_not)
{
	struct nn_socket *s = NULL;

	if (msk->sk_bpf_storage || nn_stateless_any())
		s = nn_state_of(msk);
	if (!nn_another_sends(s) || (may_not && nn_call_sends_not()))
		return s;
	s = nn_socket_used(msk);
	if (s && s->flags & NN_SOCK_CHANGED)
		nn_socket_ask(s);
	return s;
}

/* Until the daemon has armed it, the egress hook holds it, by its state. */
static __always_inline void nn_subflow_give(struct sock *sk,
					    const struct nn_socket *from)
{
	struct nn_socket *s;

	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		bpf_get_socket_cookie(sk);
		nn_subflow_stateless(sk, from);
		return;
	}
	/* an armed one is written under its lock only */
	if (s->flags & NN_SOCK_ARMED || !nn_subflow_left(s, from))
		return;
	nn_subflow_assign(s, from);
	nn_peer_found(s, sk);
}

/* MPTCP looks for a subflow to send on. It does so when an acknowledgement
 * comes, too, in whichever process is interrupted, but not while a call has the
 * socket: then it leaves that to the call. */
static __always_inline void nn_mptcp_pushes(struct mptcp_subflow_context *f)
{
	struct sock *msk = f->conn, *sk = f->tcp_sock;
	struct nn_socket *from;

	if (!msk || !sk || !BPF_CORE_READ(msk, sk_lock.owned))
		return;
	from = nn_mptcp_used(msk, true);
	if (from && from->flags & NN_SOCK_CHANGED && nn_socket_limited(from))
		nn_subflow_give(sk, from);
}

/* Does a packet of a connection's belong to MPTCP, and does another process
 * send it now than who used the socket last? While a call has the connection it
 * sends for none but that. */
static __always_inline bool nn_subflow_of_another(struct __sk_buff *skb,
						  const struct nn_socket *s)
{
	struct sk_buff *b = bpf_cast_to_kern_ctx(skb);
	struct tcp_sock *tp;

	if (!nn_mptcp_known())
		return false;
	tp = bpf_rdonly_cast(b->sk, bpf_core_type_id_kernel(struct tcp_sock));
	return tp->is_mptcp && tp->inet_conn.icsk_inet.sk.sk_lock.owned &&
	       nn_another_sends(s) && !nn_call_sends_not();
}

/* The state of such a packet's connection: it is the calling process's from now
 * on, if that has the socket. MPTCP that has fallen back to TCP passes no other
 * hook. */
static __noinline struct nn_socket *nn_subflow_sent_by_caller(
	struct __sk_buff *skb, struct bpf_sock *sk, struct nn_socket *s)
{
	struct nn_policy *p = nn_policy();
	struct mptcp_sock *msk;
	struct nn_path path = {};
	struct nn_socket *from;
	struct nn_who w = {};
	bool another;
	__u32 n;

	if (!p || !nn_caller_sends(skb, sk, s, p))
		return s;
	msk = bpf_skc_to_mptcp_sock(sk);
	if (!msk)
		return s;
	n = nn_path_of_caller(&w, &path);
	from = nn_state_of(msk);
	if (!n && !s && !from && nn_finds_free(p)) {
		nn_cgroup_found_free(&w);
		return NULL;
	}
	another = nn_another_uses(from, &w);
	from = nn_socket_give(msk, from, &w, &path);
	if (from && another) {
		from->flags |= NN_SOCK_CHANGED;
		nn_socket_ask(from);
	}
	bpf_get_socket_cookie(skb);
	s = nn_socket_give(sk, s, &w, &path);
	if (s) {
		s->flags |= NN_SOCK_SUBFLOW;
		if (p->destinations)
			nn_peer_found(s, nn_packet_sock(skb));
		nn_port_of(s, sk->src_port);
	}
	return s;
}

#endif
