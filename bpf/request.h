/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits of processes and users by a socket option, for programs that have
 * nothing but setsockopt: the hook hands the request to the daemon, with who
 * asks, and getsockopt reads the daemon's answer. The hook cannot sleep, so the
 * program asks until the answer is there. Reservations of a socket likewise.
 */
#ifndef NETNICE_REQUEST_H
#define NETNICE_REQUEST_H

#include "identity.h"

/* Requests for the daemon. They are separate from the events of maps.h, which
 * no program may displace by asking. There is room for 250 requests; the next
 * caller gets an error and has to try again. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32768);
} requests SEC(".maps");

/* The daemon's answers, by number. A full map evicts the least recently used
 * unread answer. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct nn_answer);
} answers SEC(".maps");

/* The last request on a socket. An entry ends with its socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_request);
} asked SEC(".maps");

/* The administrators' group: its number + 1, 0 = there is none. */
__u64 admin_group;

#define NN_GROUPS_HALVED 17 /* a process has 65536 groups at most */

/* Is a task an administrator's? The kernel keeps its groups sorted. Not static:
 * the verifier then looks at it once; cred is the address of the task's. */
__noinline int nn_request_admin(__u64 cred)
{
	const struct cred *c = (const void *)cred;
	__u64 group = *(volatile __u64 *)&admin_group;
	const struct group_info *all;
	__u32 from = 0, to, at, gid;

	if (!BPF_CORE_READ(c, euid.val))
		return 1;
	if (!group)
		return 0;
	group--;
	if (BPF_CORE_READ(c, egid.val) == group)
		return 1;
	all = BPF_CORE_READ(c, group_info);
	to = BPF_CORE_READ(all, ngroups);
	for (int i = 0; i < NN_GROUPS_HALVED && from < to; i++) {
		at = from + (to - from) / 2;
		if (bpf_probe_read_kernel(&gid, sizeof(gid), &all->gid[at]))
			break;
		if (gid == group)
			return 1;
		if (gid < group)
			from = at + 1;
		else
			to = at;
	}
	return 0;
}

/* How often a user may ask, so that nobody has the daemon or the buffer for
 * themselves; set as the object is loaded. Administrators may always. */
const volatile __u64 ask_every_ns, asks_at_once;

/* The user for whom a caller counts -> the time at which the requests so far
 * are paid for. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} askers SEC(".maps");

static __always_inline bool nn_request_may(const struct task_struct *t,
					   __u32 uid)
{
	__u64 now_ns = bpf_ktime_get_ns(), paid_ns, *had;
	struct nn_policy *p = nn_policy();
	__u32 who;

	if (!p)
		return true;
	who = nn_user_of(uid, p->subordinates,
			 (__u64)BPF_CORE_READ(t, cred, user_ns));
	had = bpf_map_lookup_elem(&askers, &who);
	paid_ns = had && *had > now_ns ? *had : now_ns;
	if (paid_ns - now_ns > (asks_at_once - 1) * ask_every_ns)
		return false;
	paid_ns += ask_every_ns;
	bpf_map_update_elem(&askers, &who, &paid_ns, BPF_ANY);
	return true;
}

/* Begin a question on a socket; returns a number of errno. */
static __always_inline int nn_request_begin(struct bpf_sock *sk,
					    struct nn_request **request)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct nn_request *r;
	__u32 uid = BPF_CORE_READ(t, cred, euid.val);
	bool admin;

	admin = nn_request_admin((__u64)BPF_CORE_READ(t, cred));
	if (!admin && !nn_request_may(t, uid))
		return EAGAIN;
	r = bpf_sk_storage_get(&asked, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!r)
		return ENOMEM;
	/* there is one in a nanosecond on a CPU */
	r->number =
		bpf_ktime_get_ns() << 10 | (bpf_get_smp_processor_id() & 1023);
	r->tgid = t->tgid;
	r->uid = uid;
	r->gid = BPF_CORE_READ(t, cred, egid.val);
	r->admin = admin;
	*request = r;
	return 0;
}

static __always_inline int nn_request_send(struct nn_request *r)
{
	if (bpf_ringbuf_output(&requests, r, sizeof(*r), BPF_RB_FORCE_WAKEUP))
		return EAGAIN;
	return 0;
}

/* Returns a number of errno. */
static __always_inline int nn_request_put(struct bpf_sock *sk,
					  const struct nn_limit_asked *a)
{
	struct nn_request *r;
	int err;

	if ((a->which != PRIO_NET && a->which != PRIO_NET_USER &&
	     a->which != PRIO_POWER) ||
	    a->direction >= NN_DIRECTIONS ||
	    (a->bytes_per_sec >> 63 && a->bytes_per_sec != NETNICE_ASK))
		return EINVAL;
	err = nn_request_begin(sk, &r);
	if (err)
		return err;
	r->reserves = 0;
	r->asked = *a;
	return nn_request_send(r);
}

static __always_inline int nn_request_get(struct bpf_sock *sk,
					  struct nn_limit_asked *a)
{
	struct nn_request *r = bpf_sk_storage_get(&asked, sk, 0, 0);
	struct nn_answer *answer;

	if (!r || r->reserves)
		return EINVAL; /* nothing was asked */
	*a = r->asked;
	answer = bpf_map_lookup_elem(&answers, &r->number);
	a->error = answer ? answer->error : EINPROGRESS;
	a->bytes_per_sec = answer ? answer->bytes_per_sec : 0;
	return 0;
}

/* --- a reservation of the socket itself --- */

/* Only the daemon knows by which link it sends, and what is left of that. */
static __always_inline int nn_reserve_put(struct bpf_sock *sk,
					  const struct nn_reservation_asked *a,
					  struct nn_socket *s)
{
	struct nn_request *r;
	int err;

	if (a->slice_ns != NETNICE_ASK && a->slice_ns > a->period_ns)
		return EINVAL;
	err = nn_request_begin(sk, &r);
	if (err)
		return err;
	r->reserves = 1;
	r->reserve = *a;
	s->reserve_asked = r->number;
	return nn_request_send(r);
}

static __always_inline int nn_reserve_get(struct bpf_sock *sk,
					  struct nn_reservation_asked *a)
{
	struct nn_request *r = bpf_sk_storage_get(&asked, sk, 0, 0);
	struct nn_answer *answer;

	if (!r || !r->reserves)
		return EINVAL; /* nothing was asked */
	__builtin_memset(a, 0, sizeof(*a));
	answer = bpf_map_lookup_elem(&answers, &r->number);
	if (!answer) {
		a->error = EINPROGRESS;
		return 0;
	}
	a->period_ns = answer->period_ns;
	a->slice_ns = answer->slice_ns;
	a->extra = answer->extra;
	a->error = answer->error;
	a->bytes_per_sec = answer->bytes_per_sec;
	a->left_bytes_per_sec = answer->left_bytes_per_sec;
	return 0;
}

#endif
