/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Connections that a listener without room for state has accepted. A connection
 * gets a copy of its listener's state, but not of what is known of a listener
 * by its cookie. Until a process uses the connection, it belongs to whoever the
 * listener belongs to.
 */
#ifndef NETNICE_SHAPE_ACCEPTED_H
#define NETNICE_SHAPE_ACCEPTED_H

#include "identity.h"

/* The state of a socket that has none of its own, or of the MPTCP socket whose
 * connection it is. */
static __always_inline struct nn_socket *nn_stateless_whole(struct bpf_sock *sk)
{
	struct nn_socket *s = nn_stateless_look(sk);
	struct mptcp_sock *msk;

	if (s || !nn_mptcp_known())
		return s;
	msk = bpf_skc_to_mptcp_sock(sk);
	return msk ? nn_stateless_look(msk) : NULL;
}

/* nn_accepted_by returns the state of the listener to which a segment to these
 * addresses could have opened its connection: no peer has no address, so a
 * look-up without one finds the listener. */
static __noinline struct nn_socket *nn_accepted_by(struct __sk_buff *skb,
						   struct bpf_sock_tuple *t,
						   __u32 size, __s32 netns_id)
{
	struct bpf_sock_tuple anybody = *t;
	struct nn_socket *s = NULL;
	struct bpf_sock *sk;

	if (size == sizeof(t->ipv6)) {
		__builtin_memset(anybody.ipv6.saddr, 0,
				 sizeof(anybody.ipv6.saddr));
		anybody.ipv6.sport = 0;
	} else {
		anybody.ipv4.saddr = 0;
		anybody.ipv4.sport = 0;
	}
	sk = bpf_sk_lookup_tcp(skb, &anybody, size, netns_id, 0);
	if (!sk)
		return NULL;
	if (sk->state == TCP_LISTEN) {
		s = bpf_sk_storage_get(&sockets, sk, 0, 0);
		if (!s)
			s = nn_stateless_whole(sk);
	}
	bpf_sk_release(sk);
	return s;
}

#endif
