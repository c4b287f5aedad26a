/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which process uses a socket, and which nodes hold for it.
 *
 * A socket belongs to the process that used it last: created it, or sent on
 * it. The path is made in that process's context (or by an iterator that holds
 * the task) and kept with the socket, so that what runs later in softirq needs
 * no task.
 */
#ifndef NETNICE_IDENTITY_H
#define NETNICE_IDENTITY_H

#include "cover.h"
#include "ports.h"

/* What a socket's path follows from. */
struct nn_who {
	__u64 child;
	__u64 start_boottime_ns;
	__u64 cgroup;
	__u32 tgid;
	__u32 uid;
	__u32 epoch; /* read before the path is made from what it counts */
};

/* A program's class: the start time keeps a reused pid from its predecessor's
 * debt, and its successor from an unpaid share. */
static __always_inline __u64 nn_child_program(__u32 tgid, __u64 start_ns)
{
	return ((start_ns >> 10) << 33 >> 1) | tgid;
}

static __always_inline __u64 nn_child_node(__u32 node, __u32 generation)
{
	return 1ULL << 63 | (__u64)generation << 32 | node;
}

static __always_inline void nn_identify(struct task_struct *t,
					const struct nn_policy *p,
					struct nn_who *w)
{
	w->epoch = *(volatile const __u32 *)&p->epoch;
	w->tgid = t->tgid;
	/* The verifier searches all of the kernel's types for each pointer that
	 * is followed without a helper: only where every call is */
	w->uid = BPF_CORE_READ(t, real_cred, uid.val);
	w->start_boottime_ns = BPF_CORE_READ(t, group_leader, start_boottime);
	w->cgroup = BPF_CORE_READ(t, cgroups, dfl_cgrp, kn, id);
	w->child = nn_child_program(w->tgid, w->start_boottime_ns);
}

/* The kinds of node by which sockets are found; sockets with a rate of their
 * own are not looked for. */
static __always_inline __u32 nn_kinds(const struct nn_policy *p)
{
	return p ? p->kinds & ~(1U << NN_NODE_SOCKET) : 0;
}

/* The node that stands at the index, if it is the one that was meant. */
static __always_inline struct nn_node *nn_node_get(__u32 index,
						   __u32 generation)
{
	struct nn_node *n;

	if (!index)
		return NULL;
	n = bpf_map_lookup_elem(&nodes, &index);
	if (!n || n->generation != generation || !(n->flags & NN_NODE_LIVE))
		return NULL;
	return n;
}

/* Without any storage there is no entry: two loads, where the helpers take two
 * calls. This is where the sends of all unlimited programs end. */
static __always_inline bool nn_task_bare(struct task_struct *t)
{
	return !t->bpf_storage && !t->group_leader->bpf_storage;
}

/* A thread's own entry, else its leader's: kernel threads that work for a
 * process (io_uring) are no copies of a thread by fork. */
static __always_inline struct nn_task *nn_task_of(struct task_struct *t)
{
	struct nn_task *e;

	if (nn_task_bare(t))
		return NULL;
	e = bpf_task_storage_get(&tasks, t, 0, 0);
	if (!e)
		e = bpf_task_storage_get(&tasks, t->group_leader, 0, 0);
	return e;
}

/* Of a full path, the innermost node that only its user wants goes: nobody gets
 * around the administrator's limits by putting many of their own in between. */
static __always_inline bool nn_hop_yields(struct nn_path *path)
{
	bool found = false;

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 after = (i + 1) & (NN_PATH_MAX - 1);
		__u32 node = path->hops[i].node;
		struct nn_node *d;

		if (!found) {
			d = bpf_map_lookup_elem(&nodes, &node);
			found = d && d->flags & NN_NODE_OWN;
		}
		if (found)
			path->hops[i] = path->hops[after];
	}
	return found;
}

/* Add a node to a path of n; returns of how many it is then. Not static: the
 * verifier then looks at it once, and forgets how many they are. Else it would
 * follow each number of them through each turn of the loops below. */
__noinline __u32 nn_hop_add(struct nn_path *path, __u32 n, __u32 node)
{
	struct nn_node *d;

	if (!path || n > NN_PATH_MAX)
		return n;
	d = bpf_map_lookup_elem(&nodes, &node);
	if (!d || !(d->flags & NN_NODE_LIVE))
		return n;
	if (n == NN_PATH_MAX) {
		nn_fault(NN_FAULT_PATH_FULL);
		if (d->flags & NN_NODE_OWN || !nn_hop_yields(path))
			return n;
		n--;
	}
	barrier_var(n); /* or the mask goes, which old verifiers need */
	path->hops[n & (NN_PATH_MAX - 1)].node = node;
	path->hops[n & (NN_PATH_MAX - 1)].generation = d->generation;
	return n + 1;
}

/* Begin a path with the trees from the innermost on, of that generation. Not
 * static, as above. */
__noinline __u32 nn_trees_add(struct nn_path *path, __u32 at, __u32 generation)
{
	__u32 n = 0;

	if (!path)
		return 0;
	for (int i = 0; i < NN_TREES_DEEP && at; i++) {
		struct nn_node *d = bpf_map_lookup_elem(&nodes, &at);

		if (!d || d->kind != NN_NODE_TREE ||
		    (!i && d->generation != generation))
			break;
		n = nn_hop_add(path, n, at);
		at = d->parent;
	}
	return n;
}

/* Whose a user id is that was given to somebody for their namespaces. Not
 * static, as above. */
__noinline __u32 nn_uid_owner(__u32 uid, __u32 entries)
{
	__u32 from = 0, to = entries;

	for (int i = 0; i < 13 && from < to; i++) { /* 2^12 entries */
		__u32 at = from + (to - from) / 2;
		struct nn_subordinate *s =
			bpf_map_lookup_elem(&subordinates, &at);

		if (!s)
			break;
		if (uid < s->first)
			to = at;
		else if (uid > s->last)
			from = at + 1;
		else
			return s->owner;
	}
	return uid;
}

/* As whom a task counts for limits on users: in a user namespace as who has
 * made the outermost; so nobody leaves their limit by other ids there, nor by
 * those in a file that they have made there. Not static, as above; ns is the
 * address of the task's. */
__noinline __u32 nn_user_of(__u32 uid, __u32 entries, __u64 ns)
{
	for (int i = 0; i < NN_USERNS_DEPTH && ns; i++) {
		struct user_namespace *u = (void *)ns;
		int level = BPF_CORE_READ(u, level);

		if (level <= 0)
			break;
		if (level == 1) {
			__u32 owner = BPF_CORE_READ(u, owner.val);

			if (owner)
				return owner;
			break; /* root's: its users are as many as there are */
		}
		ns = (__u64)BPF_CORE_READ(u, parent);
	}
	return nn_uid_owner(uid, entries);
}

/* Fill an empty path, innermost first; returns how many nodes hold. */
static __always_inline __u32 nn_path_make(struct nn_policy *p,
					  struct task_struct *t,
					  const struct nn_who *w,
					  struct nn_path *path)
{
	__u32 n = 0, *node;

	if (p->kinds & 1 << NN_NODE_TREE) {
		struct nn_task *e = nn_task_of(t);

		if (e)
			n = nn_trees_add(path, e->node, e->generation);
	}
	if (p->kinds & 1 << NN_NODE_CGROUP) {
		/* self is the first field of a cgroup */
		struct cgroup_subsys_state *css =
			(void *)BPF_CORE_READ(t, cgroups, dfl_cgrp);

		for (int i = 0; i < NN_CGROUP_DEPTH && css; i++) {
			struct cgroup *g = (struct cgroup *)css;
			__u64 id = BPF_CORE_READ(g, kn, id);

			node = bpf_map_lookup_elem(&cgroups, &id);
			if (node)
				n = nn_hop_add(path, n, *node);
			css = BPF_CORE_READ(css, parent);
		}
	}
	if (p->kinds & 1 << NN_NODE_USER) {
		__u64 ns = (__u64)BPF_CORE_READ(t, real_cred, user_ns);
		__u32 uid = nn_user_of(w->uid, p->subordinates, ns);

		node = bpf_map_lookup_elem(&users, &uid);
		if (node)
			n = nn_hop_add(path, n, *node);
	}
	if (p->kinds & 1 << NN_NODE_HOST)
		n = nn_hop_add(path, n, p->host_node);
	return n;
}

/* Who the calling process is, and its path, which is empty before. Not static,
 * as above. */
__noinline int nn_path_of_caller(struct nn_who *w, struct nn_path *path)
{
	struct nn_policy *p = nn_policy();
	struct task_struct *t = bpf_get_current_task_btf();

	if (!w || !path || !p)
		return 0;
	nn_identify(t, p, w);
	return nn_path_make(p, t, w, path);
}

/* Whether the path still holds for its user; what no node depends on is not
 * looked at. */
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
	/* of too many the socket's own does not hold */
	if (s->own.node && !path->hops[NN_PATH_MAX - 1].node) {
		s->path[0] = s->own;
		for (__u32 i = 1; i < NN_PATH_MAX; i++)
			s->path[i] = path->hops[i - 1];
		return;
	}
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		s->path[i] = path->hops[i];
}

/* The lower of two ceilings; 0 = none. */
static __always_inline __u64 nn_lower(__u64 a, __u64 b)
{
	if (!a)
		return b;
	return b && b < a ? b : a;
}

/* Some node holds for it, which can be the host only, and whose it is nobody
 * knows: it was there before netnice, and in no process's file table. */
static __always_inline bool nn_socket_nobodys(const struct nn_socket *s)
{
	return !s->tgid && s->path[0].node;
}

static __always_inline bool nn_socket_limited(const struct nn_socket *s)
{
	return s->path[0].node || s->rate_bytes_per_sec ||
	       s->receive_bytes_per_sec;
}

/* What comes in for this port is looked at, if some node holds for its socket.
 */
static __always_inline void nn_port_of(const struct nn_socket *s, __u32 port)
{
	if (s && s->path[0].node)
		nn_port_limited(port);
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
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		s->path[i] = from->path[i];
	s->rate_bytes_per_sec = from->rate_bytes_per_sec;
	s->receive_bytes_per_sec = from->receive_bytes_per_sec;
	s->flags |= NN_SOCK_SUBFLOW;
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
	from = bpf_sk_storage_get(&sockets, (struct sock *)msk, 0, 0);
	if (!from)
		return NULL;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		nn_fault(NN_FAULT_SOCKET_STORAGE);
		return NULL;
	}
	nn_subflow_assign(s, from);
	nn_port_of(s, sk->src_port);
	return s;
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

/* Assigns the path to a socket, whose state is made if there is none; NULL if
 * there is no memory for that. */
static __always_inline struct nn_socket *nn_socket_give(
	void *sk, struct nn_socket *s, const struct nn_who *w,
	const struct nn_path *path)
{
	if (!s)
		s = bpf_sk_storage_get(&sockets, sk, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		nn_fault(NN_FAULT_SOCKET_STORAGE);
		return NULL;
	}
	nn_socket_assign(s, w, path);
	return s;
}

/* The socket that a file is, if it is one. */
static __always_inline struct sock *nn_file_socket(struct file *file)
{
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;

	return socket ? socket->sk : NULL;
}

/* Another user than before, or another set of nodes. */
static __always_inline struct nn_socket *nn_socket_reassign(struct sock *sk,
							    struct nn_socket *s,
							    struct nn_policy *p)
{
	struct nn_path path = {};
	struct nn_who w = {};
	__u32 n = nn_path_of_caller(&w, &path);

	s = nn_socket_give(sk, s, &w, &path);
	if (s && n) {
		nn_port_limited(sk->__sk_common.skc_num);
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
	if (nn_kinds(p) == 1 << NN_NODE_TREE && !sk->sk_bpf_storage &&
	    nn_task_bare(t))
		return NULL;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	/* A kernel thread works for the socket's user. */
	if (t->flags & PF_KTHREAD)
		return s;
	if (s && nn_still_holds(s, p, t))
		return s;
	/* With process trees alone a stranger's socket stays without state. */
	if (!s && nn_kinds(p) == 1 << NN_NODE_TREE && !nn_task_of(t))
		return NULL;
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

	if (!nn_kinds(p) || !nn_path_of_caller(&w, &path))
		return;
	s = nn_socket_give(sk, NULL, &w, &path);
	if (s)
		nn_cover_ask(p, s, BPF_CORE_READ(t, cgroups, dfl_cgrp));
}

/* Fork and clone: threads too, so that exec from a thread keeps the node. */
static __always_inline void nn_task_forked(struct task_struct *parent,
					   struct task_struct *child)
{
	struct nn_task *from = nn_task_of(parent), *to;

	if (!from || !from->node)
		return;
	to = bpf_task_storage_get(&tasks, child, 0,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!to) {
		nn_fault(NN_FAULT_TASK_STORAGE);
		return;
	}
	*to = *from;
}

#endif
