/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles UDP sockets that receive: the moment at which they get a
 * port, and the sockets that are older than the limit. Their owner is known
 * from their creation on, and follow.h finds later changes.
 */
#ifndef NETNICE_SHAPE_UDP_PORT_H
#define NETNICE_SHAPE_UDP_PORT_H

#include "datagram.h"
#include "shape_owner.h"

static __always_inline void nn_bound(struct bpf_sock *sk)
{
	if (sk->protocol == IPPROTO_UDP)
		nn_port_of(bpf_sk_storage_get(&sockets, sk, 0, 0),
			   sk->src_port);
}

/* A UDP socket in a process's file table. Several may hold it: it stays with
 * whoever used it last, and of others the first that is found counts. */
static __always_inline void nn_adopt_datagrams(struct task_struct *t,
					       struct sock *sk)
{
	struct nn_policy *p = nn_policy();
	struct nn_path path = {};
	struct nn_socket *s;
	struct nn_who w;
	__u32 n;

	if (!p || !nn_of_internet(sk) || sk->sk_protocol != IPPROTO_UDP)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s && s->epoch == p->epoch)
		return;
	nn_identify(t, p, &w);
	if (s && s->tgid && s->tgid != w.tgid && nn_path_begins_live(s))
		return;
	n = nn_path_make(p, t, &w, &path);
	if (!s && !n && !nn_kinds_later(p))
		return;
	s = nn_sock_give(sk, s, &w, &path);
	if (s && p->destinations)
		nn_peer_found(s, sk);
	nn_port_of(s, sk->__sk_common.skc_num);
}

#endif
