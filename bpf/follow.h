/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds a process that only reads from a socket which another process
 * made, or that has changed its user or cgroup. Only hooks that every process's
 * calls would meet could show that. The user side therefore walks the open
 * files of all processes now and then. A process that sends is known at once.
 */
#ifndef NETNICE_FOLLOW_H
#define NETNICE_FOLLOW_H

#include "adopt_file.h"

/* The number of this walk, from 1 on; the user side sets it. */
__u32 follow_walk;

/* nn_user_has tells whether the process that used the socket last may still
 * have it: this walk or the one before has found it, or this walk may find it
 * later. unsure: another walk has to decide. */
static __always_inline bool nn_user_has(struct nn_socket *s, bool *unsure)
{
	__u32 age = follow_walk - s->met_walk;

	if (s->met_walk && age == 2)
		return false;
	if (!s->met_walk || age > 2)
		s->met_walk = follow_walk - 1;
	*unsure = age != 0;
	return true;
}

/* What a process has sent by a connection is charged to it, also once it has
 * the connection no more and another one has it open. */
static __always_inline bool nn_left_to_send(struct sock *sk)
{
	struct mptcp_sock *msk = (void *)sk;
	struct tcp_sock *tp = (void *)sk;

	if (sk->__sk_common.skc_state == TCP_LISTEN)
		return false;
	if (sk->sk_protocol == IPPROTO_MPTCP)
		return BPF_CORE_READ(msk, write_seq) !=
		       BPF_CORE_READ(msk, snd_una);
	return sk->sk_protocol == IPPROTO_TCP &&
	       BPF_CORE_READ(tp, write_seq) != BPF_CORE_READ(tp, snd_una);
}

/* Whether a process that is not known to use the socket does: it sleeps in a
 * call on it, or the one that did has it no more. Several may have it that
 * nobody is known to use; an heir is not the first of them. */
static __always_inline bool nn_has_taken(struct task_struct *t,
					 const struct file *file, __u32 fd,
					 struct sock *sk, struct nn_socket *s,
					 bool *unsure)
{
	if (s && s->tgid) {
		if (nn_left_to_send(sk)) {
			*unsure = true;
			return false;
		}
		if (!nn_user_has(s, unsure))
			return true;
	} else if (!nn_inherited(t, file, fd)) {
		return true;
	}
	return nn_sleeps_in(t, sk);
}

/* A socket in a process's file table. True: another walk is needed. */
static __always_inline bool nn_follow_file(struct task_struct *t,
					   const struct file *file, __u32 fd,
					   struct sock *sk)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	bool unsure = false;
	struct nn_socket *s;
	struct nn_who w;
	__u32 n;

	if (!nn_kinds(p) || !nn_sends_by_network(sk))
		return false;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s && nn_task_free(p, t))
		return false;
	nn_identify(t, p, &w);
	if (s && s->tgid == w.tgid &&
	    s->start_boottime_ns == w.start_boottime_ns) {
		s->met_walk = follow_walk;
		if (nn_still_holds(s, p, t))
			return false;
	} else if (!nn_has_taken(t, file, fd, sk, s, &unsure)) {
		return unsure;
	}
	n = nn_path_make(p, t, &w, &path);
	if (!n && nn_finds_free(p))
		nn_cgroup_found_free(&w);
	if (!s && !n)
		return false;
	s = nn_sock_give(sk, s, &w, &path);
	if (!s)
		return false;
	if (p->destinations)
		nn_peer_found(s, sk);
	s->met_walk = follow_walk;
	nn_subflows_forget(s);
	nn_port_of(s, sk->__sk_common.skc_num);
	if (n)
		nn_cover_ask(p, s, nn_sock_cgroup(sk));
	if (sk->sk_protocol == IPPROTO_TCP &&
	    sk->__sk_common.skc_state != TCP_LISTEN)
		nn_socket_ask(s);
	return false;
}

#endif
