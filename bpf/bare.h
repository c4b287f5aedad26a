/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sockets that cannot have state of their own: a program may fill a socket's
 * memory for options (TCP_MD5SIG keys for made-up peers) before a limit comes,
 * and then there is no room. What holds for them is noted by their cookie, each
 * time that they are used. The egress hook charges them and sends back to TCP,
 * or drops, what has to wait, as with connections without our callbacks.
 */
#ifndef NETNICE_BARE_H
#define NETNICE_BARE_H

#include "cover.h"

/* How many were noted: unlimited traffic pays one look at it. */
__u32 bare_noted;

static const struct nn_socket nn_bare_fresh = {.flags = NN_SOCK_BARE};

/* As an address: where packets are looked at, the verifier lets no field of the
 * kernel's be reached from a socket. */
static __always_inline void *nn_bare_address(void *sk)
{
	void *at = NULL;

	bpf_probe_read_kernel(&at, sizeof(at), &sk);
	return at;
}

/* 0: nobody has asked for it, so nothing is noted by it. */
static __always_inline __u64 nn_bare_cookie(void *sk)
{
	struct sock_common *skc = nn_bare_address(sk);
	__u64 cookie = 0;

	bpf_core_read(&cookie, sizeof(cookie), &skc->skc_cookie);
	return cookie;
}

static __noinline __attribute__((unused)) struct nn_socket *nn_bare_look(
	void *sk)
{
	__u64 cookie = nn_bare_cookie(sk);

	return bpf_map_lookup_elem(&bare_sockets, &cookie);
}

/* What holds for a socket, wherever that is noted. */
static __always_inline struct nn_socket *nn_state_of(void *sk)
{
	struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);

	return s || !bare_noted ? s : nn_bare_look(sk);
}

/* Where it was made. */
static __always_inline __u64 nn_bare_cgroup(void *sk)
{
	return nn_cgroup_id(nn_sock_cgroup(nn_bare_address(sk)));
}

static __always_inline void nn_bare_count(void *sk)
{
	__u64 cgroup = nn_bare_cgroup(sk);
	__u32 *n = bpf_map_lookup_elem(&bare_cgroups, &cgroup), one = 1;

	__sync_fetch_and_add(&bare_noted, 1);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&bare_cgroups, &cgroup, &one, BPF_ANY);
}

/* The same, made if it is not there. */
static __noinline __attribute__((unused)) struct nn_socket *nn_bare_make(
	void *sk)
{
	__u64 cookie = nn_bare_cookie(sk);
	struct nn_socket *s = bpf_map_lookup_elem(&bare_sockets, &cookie);

	if (s || !cookie)
		return s;
	bpf_map_update_elem(&bare_sockets, &cookie, &nn_bare_fresh,
			    BPF_NOEXIST);
	nn_bare_count(sk);
	return bpf_map_lookup_elem(&bare_sockets, &cookie);
}

/* Nothing holds for it any more. */
static __always_inline void nn_bare_forget(void *sk)
{
	__u64 cookie;

	if (!bare_noted)
		return;
	cookie = nn_bare_cookie(sk);
	bpf_map_delete_elem(&bare_sockets, &cookie);
}

/* May it be one of those that the table had no room for? Its options take
 * memory, and from its cgroup so many were noted that some were forgotten:
 * nobody else's sockets suffer for them. */
static __noinline __attribute__((unused)) bool nn_bare_lost(void *sk)
{
	struct sock *of = nn_bare_address(sk);
	__u64 cgroup;
	int taken = 0;
	__u32 *n;

	if (bare_noted < NN_BARE_SOCKETS / 2)
		return false;
	bpf_core_read(&taken, sizeof(taken), &of->sk_omem_alloc.counter);
	if (taken <= 0)
		return false;
	cgroup = nn_bare_cgroup(sk);
	n = bpf_map_lookup_elem(&bare_cgroups, &cgroup);
	return n && *n >= NN_BARE_OF_CGROUP;
}

#endif
