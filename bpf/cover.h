/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which sockets the egress hook sees. It stands on the lowest cgroup that holds
 * what is limited, so that others' packets do not meet it. A socket keeps the
 * cgroup that it was made in, whoever uses it: one from outside makes the
 * daemon move the hook up, and until then nothing is held there.
 */
#ifndef NETNICE_COVER_H
#define NETNICE_COVER_H

#include "kernel.h"
#include "maps.h"

static __always_inline void nn_egress_event(__u32 kind, __u64 cgroup)
{
	struct nn_egress_event event = {.kind = kind, .cgroup = cgroup};

	if (bpf_ringbuf_output(&events, &event, sizeof(event),
			       BPF_RB_FORCE_WAKEUP))
		nn_fault(NN_FAULT_EVENT_LOST);
}

static __always_inline struct cgroup *nn_sock_cgroup(const struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_cgrp_data.cgroup))
		return NULL; /* within none: the hook goes on the root */
	return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
}

static __always_inline __u64 nn_cgroup_id(const struct cgroup *g)
{
	return BPF_CORE_READ(g, kn, id);
}

/* Above a cgroup, whose users make as many levels as they like: a call looks at
 * some of them, which the verifier follows once. */
struct nn_climb {
	__u64 at; /* struct cgroup_subsys_state, 0 = past the root */
	__u64 id; /* id to look for */
	__u32 n;  /* of a path */
	__u32 found;
};

static __always_inline __u64 nn_climb_on(struct nn_climb *c)
{
	/* self is the first field of a cgroup */
	struct cgroup *g = (struct cgroup *)c->at;
	__u64 id = nn_cgroup_id(g);

	c->at = (__u64)BPF_CORE_READ(g, self.parent);
	return id;
}

/* Returns whether to go on. Not static: the verifier then looks at it once. */
__noinline int nn_climb_look(struct nn_climb *c)
{
	if (!c)
		return 0;
	for (int i = 0; i < NN_CGROUP_CLIMB && c->at; i++) {
		if (nn_climb_on(c) == c->id) {
			c->found = 1;
			return 0;
		}
	}
	return c->at != 0;
}

/* Is the cgroup the one of that id, or below it? */
static __always_inline bool nn_cgroup_within(struct cgroup *g, __u64 id)
{
	struct nn_climb c = {.at = (__u64)g, .id = id};

	for (int i = 0; i < NN_CGROUP_CLIMBS; i++)
		if (!nn_climb_look(&c))
			break;
	return c.found;
}

/* A limited socket: have the hook see it, which takes the daemon about a
 * millisecond. No program waits for that in its own call: TCP's first window is
 * small, and charged. */
static __always_inline void nn_cover_ask(struct nn_policy *p,
					 struct nn_socket *s, struct cgroup *g)
{
	__u64 cover = *(volatile __u64 *)&p->cover;

	if (!cover || s->flags & NN_SOCK_STRAY || nn_cgroup_within(g, cover))
		return;
	s->flags |= NN_SOCK_STRAY;
	nn_egress_event(NN_EVENT_COVER, nn_cgroup_id(g));
}

/* A packet that goes back to TCP has to meet the hook. Where it does not, no
 * packet may wait for that. */
static __always_inline bool nn_egress_sees(struct nn_socket *s,
					   const struct sock *sk)
{
	struct nn_policy *p = nn_policy();
	struct cgroup *g;

	/* The hook is there while there is a node, or for sockets' rates. */
	if (!p || (!s->path[0].node && !p->kinds))
		return false;
	if (!p->cover)
		return true;
	g = nn_sock_cgroup(sk);
	if (nn_cgroup_within(g, p->cover))
		return true;
	if (!(s->flags & NN_SOCK_STRAY)) {
		s->flags |= NN_SOCK_STRAY;
		nn_egress_event(NN_EVENT_COVER, nn_cgroup_id(g));
	}
	return false;
}

#endif
