/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which tasks have which table of open files. Anybody can have a thousand
 * processes share one of a million files (clone with CLONE_FILES): the user
 * side then looks into it once for all that are limited alike.
 */
#ifndef NETNICE_FILE_TABLE_H
#define NETNICE_FILE_TABLE_H

#include "path.h"

/* A thread whose table its leader does not have. */
struct nn_file_table_record {
	__u64 table;
	__u64 cgroup;
	__u32 tid;
	__u32 tgid;
	__u32 uid;
	__u32 tree; /* node, 0 = none */
};

static __always_inline bool nn_file_table_of(struct task_struct *t,
					     struct nn_file_table_record *r)
{
	struct task_struct *leader = t->group_leader;
	struct nn_task *e;

	r->table = (__u64)t->files;
	if (!r->table || (t != leader && leader->files == t->files))
		return false;
	r->tid = t->pid;
	r->tgid = t->tgid;
	r->uid = BPF_CORE_READ(t, real_cred, uid.val);
	r->cgroup = BPF_CORE_READ(t, cgroups, dfl_cgrp, kn, id);
	e = nn_task_of(t);
	r->tree = e ? e->node : 0;
	return true;
}

#endif
