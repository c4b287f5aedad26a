/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Adoption of processes that were there before the limit: the members of a
 * tree get its node, and those of a tree that ends the node around it. The user
 * side runs an iterator over all tasks.
 */
#ifndef NETNICE_ADOPT_TASK_H
#define NETNICE_ADOPT_TASK_H

#include "path.h"

#define NN_ANCESTORS 64

/* Arguments of the iterator, set before each run. */
__u32 adopt_root_tgid; /* root of the tree */
__u32 adopt_node;      /* its node */
__u32 adopt_outer;     /* the node that the root was in before, 0 = none */
__u32 release_node;    /* a node whose members fall to adopt_outer */

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

#endif
