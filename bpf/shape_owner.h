/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Whose a socket is that receives: UDP sockets from their creation on, and
 * whoever receives or sends on one later. TCP sockets are known already; one
 * that only ever receives is looked at here.
 */
#ifndef NETNICE_SHAPE_OWNER_H
#define NETNICE_SHAPE_OWNER_H

#include "send_buffer.h"
#include "shape_for.h"

/* It may have got its port since it was made. */
static __always_inline void nn_datagrams_used(struct sock *sk, int sent)
{
	if (sent == -ENOBUFS)
		nn_buffer_short(sk);
	if (nn_sends_datagrams(sk))
		nn_port_of(nn_socket_used(sk), sk->__sk_common.skc_num);
}

static __always_inline void nn_receives(struct sock *sk)
{
	struct nn_socket *s;

	if (!nn_of_internet(sk) ||
	    (sk->sk_protocol != IPPROTO_UDP && sk->sk_protocol != IPPROTO_TCP))
		return;
	s = nn_socket_used(sk);
	if (!s && sk->sk_bpf_storage) /* limited by itself, perhaps */
		s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (sk->sk_protocol == IPPROTO_UDP)
		nn_port_of(s, sk->__sk_common.skc_num);
	else if (s)
		nn_socket_ask(s);
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
	if (s && s->tgid && s->tgid != w.tgid && s->path[0].node)
		return;
	n = nn_path_make(p, t, &w, &path);
	if (!s && !n && !(p->kinds & 1 << NN_NODE_DESTINATION))
		return;
	s = nn_socket_give(sk, s, &w, &path);
	if (s && p->destinations)
		nn_peer_found(s, sk);
	nn_port_of(s, sk->__sk_common.skc_num);
}

#endif
