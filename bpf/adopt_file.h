/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adoption of sockets that were there before the limit and that a process has
 * in its table of files: which of several processes a socket belongs to.
 */
#ifndef NETNICE_ADOPT_FILE_H
#define NETNICE_ADOPT_FILE_H

#include "datagram.h"
#include "socket.h"

#define NN_HEIRS    8 /* generations through which a file is inherited */
#define NN_SLEEPERS 8 /* tasks looked at that wait for a socket */

/* Does a thread of the process sleep in a call on the socket? Others wait for
 * it, too, who have no task in private. */
static __always_inline bool nn_sleeps_in(struct task_struct *t, struct sock *sk)
{
	struct socket_wq *wq = BPF_CORE_READ(sk, sk_wq);
	struct list_head *head, *at;

	if (!wq)
		return false;
	head = (void *)wq + bpf_core_field_offset(struct socket_wq, wait) +
	       bpf_core_field_offset(wait_queue_head_t, head);
	at = BPF_CORE_READ(head, next);
	for (int i = 0; i < NN_SLEEPERS && at && at != head; i++) {
		struct wait_queue_entry *e =
			(void *)at -
			bpf_core_field_offset(struct wait_queue_entry, entry);
		struct task_struct *who = BPF_CORE_READ(e, private);

		if (who && BPF_CORE_READ(who, group_leader) == t->group_leader)
			return true;
		at = BPF_CORE_READ(at, next);
	}
	return false;
}

/* Is the file inherited from an ancestor that has it still? */
static __always_inline bool nn_inherited(struct task_struct *t,
					 const struct file *file, __u32 fd)
{
	struct task_struct *p = t;

	for (int i = 0; i < NN_HEIRS; i++) {
		struct file *held = NULL, **fds;

		p = BPF_CORE_READ(p, real_parent);
		if (BPF_CORE_READ(p, tgid) <= 1)
			break;
		if (fd >= BPF_CORE_READ(p, files, fdt, max_fds))
			continue;
		fds = BPF_CORE_READ(p, files, fdt, fd);
		bpf_probe_read_kernel(&held, sizeof(held), fds + fd);
		if (held == file && BPF_CORE_READ(p, tgid) != t->tgid)
			return true;
	}
	return false;
}

/* nn_adopt_file makes the path of a socket in a process's file table once more.
 * Several processes may hold the socket. It stays with the one that used it
 * last, if that is known. The heir of a socket gets it only if it sleeps in a
 * call on it. Otherwise the first process that is found gets it. The next
 * sender takes the socket over. */
static __always_inline void nn_adopt_file(struct task_struct *t,
					  const struct file *file, __u32 fd,
					  struct sock *sk)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_socket *s;
	struct nn_who w;
	__u32 n;

	if (!p || !nn_sends_by_network(sk))
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && s->epoch == p->epoch)
		return;
	nn_identify(t, p, &w);
	if (!s || s->tgid != w.tgid) {
		if (s && s->tgid && nn_path_begins_live(s))
			return; /* another process's, looked at in turn */
		if (nn_inherited(t, file, fd) && !nn_sleeps_in(t, sk))
			return;
	}
	n = nn_path_make(p, t, &w, &path);
	if (!s && !n && !nn_kinds_later(p))
		return;
	s = nn_sock_give(sk, s, &w, &path);
	if (!s)
		return;
	if (p->destinations)
		nn_peer_found(s, sk);
	nn_subflows_forget(s);
	nn_port_of(s, sk->__sk_common.skc_num);
}

#endif
