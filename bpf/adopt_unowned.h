/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adoption of connections that no process has: a program has closed them with
 * data left to send, or nobody has used them yet. The limits of the machine,
 * of the cgroup and of the user hold for them.
 */
#ifndef NETNICE_ADOPT_UNOWNED_H
#define NETNICE_ADOPT_UNOWNED_H

#include "path.h"
#include "socket.h"

static __always_inline bool nn_path_holds(const struct nn_path *path,
					  __u32 node)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		if (path->hops[i].node == node)
			return true;
	return false;
}

/* The nodes of these kinds that held for a connection when its program closed
 * it, and still do. */
static __always_inline __u32 nn_path_left(const struct nn_socket *s,
					  __u32 kinds, struct nn_path *path,
					  __u32 n)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 node = s->path[i].node;
		struct nn_node *d = nn_node_get(node, s->path[i].generation);

		if (d && kinds & 1 << (d->kind & 31) &&
		    !nn_path_holds(path, node))
			n = nn_hop_add(path, n, node);
	}
	return n;
}

/* Nobody has the connection open. It keeps the nodes that hold for it. To these
 * come the cgroup and the user that made the socket. The subflows of MPTCP do
 * not have a user before 6.18. A start time of 0 is no process's: whoever
 * accepts the connection makes its path anew. */
static __always_inline __u32 nn_closed_path(struct nn_policy *p,
					    struct tcp_sock *tp,
					    const struct nn_socket *s,
					    struct nn_who *w,
					    struct nn_path *path)
{
	struct sock *sk = (struct sock *)tp;
	struct cgroup *g = nn_sock_cgroup(sk);
	struct nn_climb c = {};
	__u32 uid, *node;

	w->uid = BPF_CORE_READ(sk, sk_uid.val);
	w->cgroup = g ? nn_cgroup_id(g) : 0;
	if (s && s->tgid) {
		w->child = s->child;
		w->tgid = s->tgid;
		w->uid = s->uid;
		c.n = nn_path_left(s, 1 << NN_NODE_TREE, path, 0);
	}
	if (p->kinds & 1 << NN_NODE_CGROUP) {
		c.at = (__u64)g;
		for (int i = 0; i < NN_CGROUP_CLIMBS; i++)
			if (!c.at || !nn_cgroups_add(path, &c))
				break;
	}
	if (p->kinds & 1 << NN_NODE_USER) {
		uid = nn_user_of(w->uid, p->subordinates, 0);
		node = bpf_map_lookup_elem(&users, &uid);
		if (node && (uid || !bpf_core_field_exists(tp->is_mptcp) ||
			     !tp->is_mptcp))
			c.n = nn_hop_add(path, c.n, *node);
	}
	if (s && s->tgid)
		c.n = nn_path_left(s, 1 << NN_NODE_CGROUP | 1 << NN_NODE_USER,
				   path, c.n);
	return c.n;
}

/* Limits hold for connections of no process, too: the machine's for all, those
 * of cgroups and users for closed ones. Not inline: its stack is not among
 * those of the walk along the path then. */
static __noinline struct nn_socket *nn_adopt_nobodys(struct tcp_sock *tp,
						     bool closed)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_who nobody = {};
	struct nn_socket *s;
	__u32 n = 0;

	if (!p)
		return NULL;
	s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0, 0);
	nobody.epoch = p->epoch;
	if (closed)
		n = nn_closed_path(p, tp, s, &nobody, &path);
	if (p->kinds & 1 << NN_NODE_HOST)
		n = nn_hop_add(&path, n, p->host_node);
	if (!s && !n && !nn_kinds_later(p))
		return NULL;
	if (!s)
		s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0,
				       BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return NULL;
	nn_socket_assign(s, &nobody, &path);
	nn_peer_found(s, (struct sock *)tp);
	return s;
}

/* Has its program closed the connection? One that is not accepted yet has no
 * file either. A closed MPTCP socket's subflow stays established. */
static __always_inline bool nn_left_behind(const struct sock_common *skc,
					   struct tcp_sock *tp)
{
	if (tp->inet_conn.icsk_inet.sk.sk_socket)
		return false;
	return (skc->skc_state != TCP_ESTABLISHED &&
		skc->skc_state != TCP_CLOSE_WAIT) ||
	       (bpf_core_field_exists(tp->is_mptcp) && tp->is_mptcp);
}

/* The path of a connection whose process is not known. That of other ones is
 * made where their files are. */
static __always_inline void nn_adopt_unowned(struct sock_common *skc)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(skc);
	struct nn_policy *p = nn_policy();
	struct nn_socket *s;
	bool closed;

	if (!p || !tp)
		return;
	s = bpf_sk_storage_get(&sockets, (struct sock *)tp, 0, 0);
	if (s && s->epoch == p->epoch)
		return;
	closed = nn_left_behind(skc, tp);
	if (closed ? nn_kinds(p)
		   : (!s || !s->tgid) && (p->kinds & 1 << NN_NODE_HOST ||
					  nn_kinds_later(p)))
		nn_adopt_nobodys(tp, closed);
}

#endif
