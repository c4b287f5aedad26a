/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * As which user a task counts: ids are cheap to have in a user namespace.
 */
#ifndef NETNICE_USER_H
#define NETNICE_USER_H

#include "maps.h"

/* Whose a user id is that was given to somebody for their namespaces. Not
 * static: the verifier then looks at it once. */
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

/* Find the user for whom a task counts. In a user namespace that is the creator
 * of the outermost one. A user therefore cannot leave the limit by other ids
 * there, nor by those in a file that the user has made there. A program of such
 * a file may make a namespace outside: its id is looked up, too. Not static, as
 * above; ns is the address of the task's. */
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
				uid = owner;
			/* root's: its users are as many as there are */
			break;
		}
		ns = (__u64)BPF_CORE_READ(u, parent);
	}
	return nn_uid_owner(uid, entries);
}

#endif
