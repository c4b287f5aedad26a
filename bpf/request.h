/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits of processes and users by a socket option, for programs that have
 * nothing but setsockopt: the hook hands the request to the daemon, with who
 * asks, and getsockopt reads the daemon's answer. The hook cannot sleep, so the
 * program asks until the answer is there.
 */
#ifndef NETNICE_REQUEST_H
#define NETNICE_REQUEST_H

#include "identity.h"

/* For the daemon. Beside the events of maps.h, which no program may displace by
 * asking. Room for 250; the next is told to try again. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16384);
} requests SEC(".maps");

/* The daemon's answers, by number. Of those that nobody has read the least
 * recently used goes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct nn_answer);
} answers SEC(".maps");

/* What was asked on a socket last; goes with it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_request);
} asked SEC(".maps");

/* Returns a number of errno. */
static __always_inline int nn_request_put(struct bpf_sock *sk,
					  const struct nn_limit_asked *a)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct nn_request *r;

	if ((a->which != PRIO_NET && a->which != PRIO_NET_USER) ||
	    a->direction >= NN_DIRECTIONS ||
	    (a->bytes_per_sec >> 63 && a->bytes_per_sec != NETNICE_ASK))
		return EINVAL;
	r = bpf_sk_storage_get(&asked, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!r)
		return ENOMEM;
	/* there is one in a nanosecond on a CPU */
	r->number =
		bpf_ktime_get_ns() << 10 | (bpf_get_smp_processor_id() & 1023);
	r->tgid = t->tgid;
	r->uid = BPF_CORE_READ(t, cred, euid.val);
	r->gid = BPF_CORE_READ(t, cred, egid.val);
	r->pad = 0;
	r->asked = *a;
	if (bpf_ringbuf_output(&requests, r, sizeof(*r), BPF_RB_FORCE_WAKEUP))
		return EAGAIN;
	return 0;
}

static __always_inline int nn_request_get(struct bpf_sock *sk,
					  struct nn_limit_asked *a)
{
	struct nn_request *r = bpf_sk_storage_get(&asked, sk, 0, 0);
	struct nn_answer *answer;

	if (!r)
		return EINVAL; /* nothing was asked */
	*a = r->asked;
	answer = bpf_map_lookup_elem(&answers, &r->number);
	a->error = answer ? answer->error : EINPROGRESS;
	a->bytes_per_sec = answer ? answer->bytes_per_sec : 0;
	return 0;
}

#endif
