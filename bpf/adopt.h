/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adoption: processes and connections that were there before the limit. The
 * user side runs these iterators after each change of the set of nodes.
 */
#ifndef NETNICE_ADOPT_H
#define NETNICE_ADOPT_H

#include "datagram.h"
#include "pacing.h"

#define NN_ANCESTORS 64
#define NN_HEIRS     8 /* generations through which a file is inherited */
#define NN_SLEEPERS  8 /* tasks looked at that wait for a socket */

/* Arguments of the iterators below, set before each run. */
__u32 adopt_root_tgid; /* root of the tree */
__u32 adopt_node;      /* its node */
__u32 adopt_outer;     /* the node that the root was in before, 0 = none */
__u32 release_node;    /* a node whose members fall to adopt_outer */
__u32 list_node;       /* only sockets on whose path it is, 0 = all */
__u32 release_rates;   /* sockets lose their own rates, too */
__u32 list_others;     /* sockets that are no TCP's, too */

/* Mark the members of a tree. Far: whether this is one cannot be said before
 * its parent is looked at; the user side then runs it once more. Members of
 * trees nested in it keep theirs, whose outermost node gets the new one as its
 * parent: then the answer is true. */
static __always_inline bool nn_adopt_task(struct task_struct *t, bool *member,
					  bool *far)
{
	struct nn_task *e, *above, fresh = {};
	struct task_struct *p = t;
	struct nn_node *root;
	__u32 node = adopt_node, at;

	root = bpf_map_lookup_elem(&nodes, &node);
	if (!root)
		return false;
	/* A child of a member is one, however far away the root is. */
	above = nn_task_of(t->real_parent);
	*member = above && above->node == node &&
		  above->generation == root->generation;
	*far = true;
	for (int i = 0; i < NN_ANCESTORS && !*member; i++) {
		__u32 tgid = BPF_CORE_READ(p, tgid);

		if (tgid == adopt_root_tgid) {
			*member = true;
			break;
		}
		if (tgid <= 1) {
			*far = false;
			break;
		}
		p = BPF_CORE_READ(p, real_parent);
	}
	if (!*member)
		return false;
	fresh.node = node;
	fresh.generation = root->generation;
	e = bpf_task_storage_get(&tasks, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!e) {
		nn_fault(NN_FAULT_TASK_STORAGE);
		return false;
	}
	at = e->node;
	if (!at || at == adopt_outer || at == node) {
		*e = fresh;
		return false;
	}
	for (int i = 0; i < NN_TREES_DEEP; i++) {
		struct nn_node *d = bpf_map_lookup_elem(&nodes, &at);

		if (!d || (!i && d->generation != e->generation)) {
			*e = fresh; /* left over from a node that is gone */
			return false;
		}
		if (d->parent == node)
			return true;
		if (d->parent == adopt_outer) {
			if (at != node)
				d->parent = node;
			return true;
		}
		at = d->parent;
	}
	return false;
}

/* Hand the members of a node that goes to the one around it. */
static __always_inline void nn_release_task(struct task_struct *t)
{
	struct nn_task *e = bpf_task_storage_get(&tasks, t, 0, 0);
	__u32 outer = adopt_outer;
	struct nn_node *d;

	if (!e || e->node != release_node)
		return;
	d = outer ? bpf_map_lookup_elem(&nodes, &outer) : NULL;
	if (!d || d->kind != NN_NODE_TREE) {
		bpf_task_storage_delete(&tasks, t);
		return;
	}
	e->node = outer;
	e->generation = d->generation;
}

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
