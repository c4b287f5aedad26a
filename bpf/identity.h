/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the process that uses a socket, and the nodes that limit it.
 *
 * A socket belongs to the process that used it last: created it, or sent on
 * it. The path is made in that process's context (or by an iterator that holds
 * the task) and kept with the socket, so that what runs later in softirq needs
 * no task.
 */
#ifndef NETNICE_IDENTITY_H
#define NETNICE_IDENTITY_H

#include "stateless.h"
#include "link.h"
#include "ports.h"

/* nn_still_holds tells whether the path is still true for the socket's user. It
 * looks only at properties on which some node depends. */
static __always_inline bool nn_still_holds(const struct nn_socket *s,
					   const struct nn_policy *p,
					   struct task_struct *t)
{
	__u32 kinds = nn_kinds(p);

	return s->epoch == p->epoch && s->tgid == t->tgid &&
	       s->start_boottime_ns == t->group_leader->start_boottime &&
	       (!(kinds & 1 << NN_NODE_USER) ||
		s->uid == t->real_cred->uid.val) &&
	       (!(kinds & 1 << NN_NODE_CGROUP) ||
		s->cgroup == t->cgroups->dfl_cgrp->kn->id);
}

static __always_inline void nn_socket_assign(struct nn_socket *s,
					     const struct nn_who *w,
					     const struct nn_path *path)
{
	s->child = w->child;
	s->start_boottime_ns = w->start_boottime_ns;
	s->cgroup = w->cgroup;
	s->tgid = w->tgid;
	s->uid = w->uid;
	s->epoch = w->epoch;
	s->to[NN_OWNER_ADMIN].node = s->to[NN_OWNER_USER].node = 0;
	s->met_walk = 0;
	/* on a full path the socket's own node is left out */
	if (s->own.node && !path->hops[NN_PATH_MAX - 1].node) {
		s->path[0] = s->own;
		for (__u32 i = 1; i < NN_PATH_MAX; i++)
			s->path[i] = path->hops[i - 1];
	} else {
		for (__u32 i = 0; i < NN_PATH_MAX; i++)
			s->path[i] = path->hops[i];
	}
	s->link.node = 0;
	nn_destined(s);
	nn_linked(s);
}

/* nn_socket_nobodys tells that a node limits the socket, and that no process is
 * known to own it. Such a socket is older than netnice: either in no process's
 * file table, and limited by the host only, or closed by its program. */
static __always_inline bool nn_socket_nobodys(const struct nn_socket *s)
{
	return !s->tgid && s->path[0].node;
}

static __always_inline bool nn_socket_limited(const struct nn_socket *s)
{
	return s->path[0].node || s->rate_bytes_per_sec ||
	       s->receive_bytes_per_sec;
}

/* nn_port_of marks a port if some node limits its socket. Ingress to marked
 * ports is looked at. */
static __always_inline void nn_port_of(const struct nn_socket *s, __u32 port)
{
	if (s && s->path[0].node)
		nn_port_mark(port, s->flags & NN_SOCK_STATELESS);
}

/* Has the helper for it, and was built with MPTCP. */
static __always_inline bool nn_mptcp_known(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id,
					  BPF_FUNC_skc_to_mptcp_sock) &&
	       bpf_core_type_exists(struct mptcp_sock);
}

/* The kernel makes the subflows of an MPTCP socket and sends on them: they have
 * no user of their own, so they take the path of the socket that has. */
static __always_inline void nn_subflow_assign(struct nn_socket *s,
					      const struct nn_socket *from)
{
	s->child = from->child;
	s->start_boottime_ns = from->start_boottime_ns;
	s->cgroup = from->cgroup;
	s->tgid = from->tgid;
	s->uid = from->uid;
	s->epoch = from->epoch;
	s->to[NN_OWNER_ADMIN].node = s->to[NN_OWNER_USER].node = 0;
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		s->path[i] = from->path[i];
	s->link = from->link;
	nn_destined(s); /* each has its own peer */
	nn_linked(s);	/* and device */
	s->rate_bytes_per_sec = from->rate_bytes_per_sec;
	s->receive_bytes_per_sec = from->receive_bytes_per_sec;
	s->flags |= NN_SOCK_SUBFLOW;
}

/* There is no room for a subflow's state: it is left to the egress hook, and to
 * the hook of what is received. */
static __always_inline void nn_subflow_stateless(void *sk,
						 const struct nn_socket *from)
{
	struct sock_common *skc = nn_stateless_address(sk);
	struct nn_socket *s;
	__u16 port = 0;

	nn_fault(NN_FAULT_SOCKET_STORAGE);
	s = nn_stateless_make(sk);
	if (!s)
		return;
	nn_subflow_assign(s, from);
	bpf_core_read(&port, sizeof(port), &skc->skc_num);
	nn_port_of(s, port);
}

/* Its path has changed: the user side tells its subflows. Written without the
 * socket's lock, and so only to an MPTCP socket, which is never armed: else a
 * flag that is set meanwhile would be lost. */
static __always_inline void nn_subflows_forget(struct nn_socket *s)
{
	if (s->flags & NN_SOCK_SUBFLOWS)
		s->flags &= ~NN_SOCK_SUBFLOWS;
}

static __always_inline struct nn_socket *nn_subflow(struct bpf_sock *sk)
{
	struct nn_socket *from, *s;
	struct mptcp_sock *msk;

	if (!nn_mptcp_known())
		return NULL;
	msk = bpf_skc_to_mptcp_sock(sk);
	if (!msk)
		return NULL;
	from = nn_state_of((struct sock *)msk);
	if (!from)
		return NULL;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		nn_subflow_stateless(sk, from);
		return NULL;
	}
	nn_subflow_assign(s, from);
	nn_port_of(s, sk->src_port);
	return s;
}

/* A subflow without state gets its own. Where there is no room for that, it is
 * stored by its cookie, which is generated here. */
static __always_inline struct nn_socket *nn_subflow_here(
	struct bpf_sock_ops *ctx, struct bpf_sock *sk)
{
	if (nn_stateless_any())
		bpf_get_socket_cookie(ctx);
	return nn_subflow(sk);
}

/* Another uses the MPTCP socket than when the subflow got its path. */
static __always_inline bool nn_subflow_left(const struct nn_socket *s,
					    const struct nn_socket *from)
{
	return s->tgid != from->tgid ||
	       s->start_boottime_ns != from->start_boottime_ns ||
	       s->uid != from->uid || s->cgroup != from->cgroup ||
	       s->epoch != from->epoch;
}

/* A subflow is about to send: it has the path that its MPTCP socket has now. */
static __always_inline void nn_subflow_follow(struct bpf_sock *sk,
					      struct nn_socket *s)
{
	struct nn_socket *from;
	struct mptcp_sock *msk;

	if (!nn_mptcp_known())
		return;
	msk = bpf_skc_to_mptcp_sock(sk);
	if (!msk)
		return;
	from = nn_state_of((struct sock *)msk);
	if (!from)
		return;
	/* The path of a closed MPTCP socket is older than its subflow's. */
	if (s->epoch == nn_epoch() &&
	    (from->epoch != s->epoch || !nn_subflow_left(s, from)))
		return;
	nn_subflow_assign(s, from);
	nn_port_of(s, sk->src_port);
}

/* MPTCP's option in each segment with data: a mapping of 18 bytes and a data
 * acknowledgement of 4 or 8, rounded up to words. A checksum fits in. */
static __always_inline __u32 nn_subflow_option(struct bpf_sock *sk)
{
	struct mptcp_sock *msk;

	if (!nn_mptcp_known())
		return 24;
	msk = bpf_skc_to_mptcp_sock(sk);
	if (!msk || !bpf_core_field_exists(msk->use_64bit_ack))
		return 24;
	return msk->use_64bit_ack ? 28 : 24;
}

/* Assigns the path to a socket, whose state is made if there is none. Where
 * there is no room for that, it is noted by the cookie that the caller has
 * asked for; NULL if that cannot be. */
static __always_inline struct nn_socket *nn_socket_give(
	void *sk, struct nn_socket *s, const struct nn_who *w,
	const struct nn_path *path)
{
	if (!s)
		s = bpf_sk_storage_get(&sockets, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		struct nn_policy *p = nn_policy();

		if (!path->hops[0].node && (!p || !nn_kinds_later(p))) {
			nn_stateless_forget(sk); /* nothing has to be known */
			return NULL;
		}
		nn_fault(NN_FAULT_SOCKET_STORAGE);
		s = nn_stateless_make(sk);
	}
	if (s)
		nn_socket_assign(s, w, path);
	return s;
}

/* The same of a socket that is at hand as the kernel has it. */
static __always_inline struct nn_socket *nn_sock_give(
	struct sock *sk, struct nn_socket *s, const struct nn_who *w,
	const struct nn_path *path)
{
	if (!s)
		bpf_get_socket_cookie(sk);
	return nn_socket_give(sk, s, w, path);
}

/* The socket that a file is, if it is one. */
static __always_inline struct sock *nn_file_socket(struct file *file)
{
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;

	return socket ? socket->sk : NULL;
}

/* With process trees and cgroups alone a stranger's socket stays without state.
 */
static __always_inline bool nn_finds_free(const struct nn_policy *p)
{
	return !(nn_kinds(p) & ~(1U << NN_NODE_TREE | 1U << NN_NODE_CGROUP));
}

/* Is this another than who used the socket last, as far as is known? */
static __always_inline bool nn_another_uses(const struct nn_socket *s,
					    const struct nn_who *w)
{
	return !s || s->child != w->child || s->uid != w->uid ||
	       s->cgroup != w->cgroup;
}

/* Another user than before, or another set of nodes. */
static __always_inline struct nn_socket *nn_socket_reassign(struct sock *sk,
							    struct nn_socket *s,
							    struct nn_policy *p)
{
	struct nn_path path = {};
	struct nn_who w = {};
	__u32 n = nn_path_of_caller(&w, &path);
	bool another;

	if (!n && !s && nn_finds_free(p)) {
		nn_cgroup_found_free(&w);
		nn_stateless_forget(sk);
		return NULL;
	}
	/* the user side gives the new nodes to its subflows */
	another = nn_another_uses(s, &w);
	s = nn_sock_give(sk, s, &w, &path);
	if (s && another && sk->sk_protocol == IPPROTO_MPTCP)
		s->flags |= NN_SOCK_CHANGED;
	if (s && p->destinations)
		nn_peer_found(s, sk);
	if (s && s->path[0].node) {
		nn_port_of(s, sk->__sk_common.skc_num);
		nn_cover_ask(p, s, nn_sock_cgroup(sk));
	}
	return s;
}

/* Called in the context of the process that uses the socket. Returns the
 * state if the socket concerns us. */
static __always_inline struct nn_socket *nn_socket_used(struct sock *sk)
{
	struct nn_policy *p = nn_policy();
	struct task_struct *t;
	struct nn_socket *s;

	if (!nn_kinds(p))
		return NULL;
	t = bpf_get_current_task_btf();
	/* the storage may be other BPF programs' */
	s = sk->sk_bpf_storage ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
	if (!s && nn_task_free(p, t)) {
		if (!(t->flags & PF_KTHREAD))
			nn_stateless_forget(sk);
		return NULL;
	}
	/* A kernel thread works for the socket's user. */
	if (t->flags & PF_KTHREAD)
		return s;
	if (s && nn_still_holds(s, p, t))
		return s;
	return nn_socket_reassign(sk, s, p);
}

/* A socket that was not armed when it was set up (made by another program, or
 * before the limit): only an iterator can switch the callbacks on, so wake
 * the daemon, once. */
static __always_inline void nn_socket_ask(struct nn_socket *s)
{
	__u32 event = NN_EVENT_ARM;

	if (!nn_socket_limited(s) || s->flags & (NN_SOCK_ARMED | NN_SOCK_ASKED))
		return;
	s->flags |= NN_SOCK_ASKED;
	if (bpf_ringbuf_output(&events, &event, sizeof(event), 0))
		nn_fault(NN_FAULT_EVENT_LOST);
}

static __always_inline void nn_socket_sends(struct sock *sk)
{
	struct nn_socket *s = nn_socket_used(sk);

	if (s)
		nn_socket_ask(s);
}

/* A program makes a socket: the connection that it becomes is armed as soon as
 * it is set up. */
static __always_inline void nn_socket_made(void *sk)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_who w = {};
	struct nn_socket *s;

	if (!nn_kinds(p))
		return;
	if (!nn_path_of_caller(&w, &path) && !nn_kinds_later(p))
		return;
	bpf_get_socket_cookie(sk);
	s = nn_socket_give(sk, NULL, &w, &path);
	if (s)
		nn_cover_ask(p, s, BPF_CORE_READ(t, cgroups, dfl_cgrp));
}

/* Fork and clone: threads too, so that exec from a thread keeps the node. */
static __always_inline void nn_task_forked(struct task_struct *parent,
					   struct task_struct *child)
{
	struct nn_task *from = nn_task_of(parent), *to;
	__u32 event = NN_EVENT_ARM;

	if (!from || !from->node)
		return;
	to = bpf_task_storage_get(&tasks, child, 0,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!to) { /* the daemon makes up for it */
		nn_fault(NN_FAULT_TASK_STORAGE);
		bpf_ringbuf_output(&events, &event, sizeof(event), 0);
		return;
	}
	*to = *from;
}

#endif
