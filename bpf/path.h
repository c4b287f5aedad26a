/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the nodes that limit a task: its process trees, innermost
 * first, then its cgroups, its user, and the host.
 */
#ifndef NETNICE_PATH_H
#define NETNICE_PATH_H

#include "cover.h"
#include "user.h"

/* nn_who is the owner of a socket, from which the socket's path follows. */
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

/* nn_kinds returns the kinds of node by which sockets are found. Sockets with a
 * rate of their own are not looked for. */
static __always_inline __u32 nn_kinds(const struct nn_policy *p)
{
	return p ? p->kinds & ~(1U << NN_NODE_SOCKET) : 0;
}

/* nn_kinds_later tells whether a socket without a node may get one later,
 * through its peer or its device. */
static __always_inline bool nn_kinds_later(const struct nn_policy *p)
{
	return nn_kinds(p) & (1 << NN_NODE_DESTINATION | 1 << NN_NODE_LINK);
}

/* nn_node_get returns the node at the index, if it is live and still the one of
 * that generation. */
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

/* A socket with a limit of its own counts as a part of its program at every
 * other clock, and so does traffic to a destination. A socket with a
 * reservation has a class of its own. */
static __always_inline bool nn_part_of_program(const struct nn_node *n,
					       __u64 guarantee)
{
	return n->kind == NN_NODE_DESTINATION ||
	       (n->kind == NN_NODE_SOCKET && !guarantee);
}

/* nn_guaranteed_down returns the rate in bytes/s that every limit around a node
 * guarantees it for ingress. */
static __always_inline __u64 nn_guaranteed_down(const struct nn_node *n)
{
	return n->limits[NN_OWNER_ADMIN][NN_DOWN].min_bytes_per_sec;
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

/* nn_cgroup_free returns the cgroup's element in free_cgroups, and in note the
 * value that is there if the cgroup is free. A note of 0 means that the
 * cgroup's id is too large to be stored. */
static __always_inline __u64 *nn_cgroup_free(__u64 id, __u32 epoch, __u64 *note)
{
	__u32 at = id & (NN_FREE_CGROUPS - 1);

	*note = id >> 32 ? 0 : id << 32 | epoch;
	return bpf_map_lookup_elem(&free_cgroups, &at);
}

/* nn_task_free tells that no node limits this task. Nearly all traffic of
 * unlimited programs ends here. It costs no call unless some BPF program keeps
 * storage with the task. nn_cgroup_found_free marks a cgroup as free when a
 * path is found empty. */
static __always_inline bool nn_task_free(const struct nn_policy *p,
					 struct task_struct *t)
{
	__u32 kinds = nn_kinds(p);
	__u64 *free, note;

	if (kinds & ~(1U << NN_NODE_TREE | 1U << NN_NODE_CGROUP))
		return false;
	if (kinds & 1 << NN_NODE_TREE && nn_task_of(t))
		return false;
	if (!(kinds & 1 << NN_NODE_CGROUP))
		return true;
	free = nn_cgroup_free(t->cgroups->dfl_cgrp->kn->id, p->epoch, &note);
	return free && note && *free == note;
}

static __always_inline void nn_cgroup_found_free(const struct nn_who *w)
{
	__u64 *free, note;

	free = nn_cgroup_free(w->cgroup, w->epoch, &note);
	if (free)
		*free = note;
}

/* nn_hop_yields removes the innermost node that only its user set from a full
 * path. Users therefore cannot get around the administrator's limits by adding
 * many limits of their own. */
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

/* nn_hop_add adds a node to a path of n nodes and returns the new number. It is
 * not static, so that the verifier checks it once and forgets the number of
 * nodes. Else the verifier would follow each number through each turn of the
 * loops below. */
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

/* nn_trees_add starts a path with the process trees, from the innermost on,
 * which has that generation. It is not static, for the same reason as
 * nn_hop_add. */
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

/* nn_cgroups_add adds some of the cgroups from c->at upwards and returns
 * whether there are more. It is not static, for the same reason as
 * nn_hop_add. */
__noinline int nn_cgroups_add(struct nn_path *path, struct nn_climb *c)
{
	if (!path || !c)
		return 0;
	for (int i = 0; i < NN_CGROUP_CLIMB && c->at; i++) {
		__u64 id = nn_climb_on(c);
		__u32 *node = bpf_map_lookup_elem(&cgroups, &id);

		if (node)
			c->n = nn_hop_add(path, c->n, *node);
	}
	return c->at != 0;
}

/* nn_path_make fills an empty path, innermost node first. It returns the number
 * of nodes. */
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
		struct nn_climb c = {
			.at = (__u64)BPF_CORE_READ(t, cgroups, dfl_cgrp),
			.n = n,
		};

		for (int i = 0; i < NN_CGROUP_CLIMBS; i++)
			if (!nn_cgroups_add(path, &c))
				break;
		n = c.n;
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

/* nn_path_of_caller identifies the calling process and fills its path, which
 * the caller passes empty. It is not static, for the same reason as
 * nn_hop_add. */
__noinline int nn_path_of_caller(struct nn_who *w, struct nn_path *path)
{
	struct nn_policy *p = nn_policy();
	struct task_struct *t = bpf_get_current_task_btf();

	if (!w || !path || !p)
		return 0;
	nn_identify(t, p, w);
	return nn_path_make(p, t, w, path);
}

#endif
