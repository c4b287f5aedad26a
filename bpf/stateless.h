/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Sockets that cannot have state of their own: a program may fill a socket's
 * memory for options (TCP_MD5SIG keys for made-up peers) before a limit comes,
 * and then there is no room. Their path is stored by their cookie, each time
 * that they are used. The egress hook charges them. It sends packets that have
 * to wait back to TCP, or drops them, as with connections without netnice's
 * callbacks.
 */
#ifndef NETNICE_STATELESS_H
#define NETNICE_STATELESS_H

#include "cover.h"
#include "user.h"

static const struct nn_socket nn_stateless_fresh = {.flags = NN_SOCK_STATELESS};

/* As an address: where packets are looked at, the verifier lets no field of the
 * kernel's be reached from a socket. */
static __always_inline void *nn_stateless_address(void *sk)
{
	void *at = NULL;

	bpf_probe_read_kernel(&at, sizeof(at), &sk);
	return at;
}

/* nn_unpacks tells whether a UDP socket is a tunnel's, whose packets the kernel
 * unpacks. */
static __always_inline bool nn_unpacks(void *sk)
{
	struct udp_sock *u = nn_stateless_address(sk);
	void *unpack = NULL;

	return !bpf_core_read(&unpack, sizeof(unpack), &u->encap_rcv) && unpack;
}

/* 0: no cookie was generated, so nothing is stored by it. */
static __always_inline __u64 nn_stateless_cookie(void *sk)
{
	struct sock_common *skc = nn_stateless_address(sk);
	__u64 cookie = 0;

	bpf_core_read(&cookie, sizeof(cookie), &skc->skc_cookie);
	return cookie;
}

static __noinline __attribute__((unused)) struct nn_socket *nn_stateless_look(
	void *sk)
{
	__u64 cookie = nn_stateless_cookie(sk);

	return bpf_map_lookup_elem(&stateless_sockets, &cookie);
}

static __always_inline __u32 *nn_stateless_noted(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stateless_noted, &zero);
}

/* Are there any? */
static __always_inline bool nn_stateless_any(void)
{
	__u32 *n = nn_stateless_noted();

	return n && *n;
}

/* The state of a socket, in its own storage or by its cookie. */
static __always_inline struct nn_socket *nn_state_of(void *sk)
{
	struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);

	return s || !nn_stateless_any() ? s : nn_stateless_look(sk);
}

/* nn_stateless_user returns the user for whom a socket counts. A socket that
 * its user has given to a subordinate id of theirs still counts as the
 * user's. */
static __always_inline __u32 nn_stateless_user(void *sk)
{
	struct sock *of = nn_stateless_address(sk);
	struct nn_policy *p = nn_policy();
	__u32 user = 0;

	bpf_core_read(&user, sizeof(user), &of->sk_uid.val);
	return nn_uid_owner(user, p ? p->subordinates : 0);
}

static __always_inline void nn_stateless_count(void *sk)
{
	__u32 user = nn_stateless_user(sk), *n = nn_stateless_noted();
	__u8 some = 1;

	if (!n)
		return;
	/* further users are not told apart */
	if ((*n & ~NN_STATELESS_OF_ALL) < NN_STATELESS_SOCKETS)
		__sync_fetch_and_add(n, 1);
	if (bpf_map_update_elem(&stateless_users, &user, &some, BPF_ANY) ==
	    -NN_E2BIG)
		__sync_fetch_and_or(n, NN_STATELESS_OF_ALL);
}

/* The same, made if it is not there. */
static __noinline __attribute__((unused)) struct nn_socket *nn_stateless_make(
	void *sk)
{
	__u64 cookie = nn_stateless_cookie(sk);
	struct nn_socket *s = bpf_map_lookup_elem(&stateless_sockets, &cookie);

	if (s || !cookie)
		return s;
	bpf_map_update_elem(&stateless_sockets, &cookie, &nn_stateless_fresh,
			    BPF_NOEXIST);
	nn_stateless_count(sk);
	return bpf_map_lookup_elem(&stateless_sockets, &cookie);
}

/* Nothing holds for it any more. */
static __always_inline void nn_stateless_forget(void *sk)
{
	__u64 cookie;

	if (!nn_stateless_any())
		return;
	cookie = nn_stateless_cookie(sk);
	bpf_map_delete_elem(&stateless_sockets, &cookie);
}

/* nn_stateless_lost tells whether the table may have had no room for a socket.
 * That needs three things: the table has forgotten entries, its user had some
 * of them, and the socket has no room for state, which only few sockets lack.
 * The sockets of other users are not affected. */
static __noinline __attribute__((unused)) bool nn_stateless_lost(void *sk)
{
	struct sock *of = nn_stateless_address(sk);
	__u32 *n = nn_stateless_noted(), user;
	int taken = 0;

	if (!n || (*n & ~NN_STATELESS_OF_ALL) < NN_STATELESS_SOCKETS / 2)
		return false;
	bpf_core_read(&taken, sizeof(taken), &of->sk_omem_alloc.counter);
	if (taken <= 0)
		return false;
	user = nn_stateless_user(sk);
	if (!(*n & NN_STATELESS_OF_ALL) &&
	    !bpf_map_lookup_elem(&stateless_users, &user))
		return false;
	return !bpf_sk_storage_get(&sockets, sk, 0,
				   BPF_SK_STORAGE_GET_F_CREATE);
}

#endif
