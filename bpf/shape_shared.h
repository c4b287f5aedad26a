/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles sockets that share a port, with a program that chooses one
 * of them for each datagram (SO_ATTACH_REUSEPORT_CBPF). A lookup does not run
 * that program and finds any of them, by the addresses. The sockets therefore
 * count as one: traffic to a socket that only the host limits, or no node,
 * belongs to a limited socket of the group. Lookups with some made-up ports of
 * the sender find that socket.
 */
#ifndef NETNICE_SHAPE_SHARED_H
#define NETNICE_SHAPE_SHARED_H

#include "shape_packet.h"

#define NN_SHARED_LOOKS 8 /* by a packet */
/* For so long what was found holds without another look, and what was not; and
 * the former while further looks find nothing. */
#define NN_SHARED_FOUND_NS     1000000000ULL
#define NN_SHARED_NOT_FOUND_NS 10000000ULL
#define NN_SHARED_LOST_NS      10000000000ULL

static const struct nn_shared nn_shared_none = {};

/* The target of the search: sockets of that group, by such addresses. */
struct nn_shared_sought {
	__u64 group;
	__u32 size; /* size of the addresses */
	__s32 netns_id;
	__u64 look; /* 0: it was in the queue already */
};

/* The group of the sockets, if they have such a program; else 0. */
static __always_inline __u64 nn_shared_of(struct bpf_sock *sk)
{
	struct bpf_sock *volatile known = sk;
	struct sock_reuseport *with = NULL;
	struct bpf_prog *chooses = NULL;
	struct sock *of = NULL;

	/* the address alone, as in nn_socket_tunnel */
	bpf_probe_read_kernel(&of, sizeof(of), (void *)&known);
	if (bpf_core_read(&with, sizeof(with), &of->sk_reuseport_cb) || !with ||
	    bpf_core_read(&chooses, sizeof(chooses), &with->prog) || !chooses)
		return 0;
	return (__u64)with;
}

/* Is a path of nobody's, or of what holds for everybody? */
static __always_inline bool nn_shared_free(const struct nn_hop *first)
{
	struct nn_node *n = nn_node_get(first->node, first->generation);

	return !n || n->kind == NN_NODE_HOST || n->kind == NN_NODE_LINK;
}

/* Note whose a socket is, if it is limited by itself. */
static __always_inline bool nn_shared_note(struct bpf_sock *sk,
					   struct nn_shared *n)
{
	struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);

	if (!s || nn_shared_free(&s->path[0]))
		return false;
	for (int i = 0; i < NN_PATH_MAX; i++)
		n->path.hops[i] = s->path[i];
	n->path.child = s->child;
	return true;
}

/* Look for a limited one among them. */
static __always_inline bool nn_shared_look(struct __sk_buff *skb,
					   struct bpf_sock_tuple *t,
					   const struct nn_shared_sought *g,
					   struct nn_shared *n)
{
	bool found = false, v6 = g->size == sizeof(t->ipv6);
	__be16 port = v6 ? t->ipv6.sport : t->ipv4.sport;

	for (int i = 0; i < NN_SHARED_LOOKS && !found; i++) {
		struct bpf_sock *sk;

		if (v6)
			t->ipv6.sport = bpf_get_prandom_u32();
		else
			t->ipv4.sport = bpf_get_prandom_u32();
		sk = bpf_sk_lookup_udp(skb, t,
				       v6 ? sizeof(t->ipv6) : sizeof(t->ipv4),
				       g->netns_id, 0);
		if (!sk)
			continue;
		/* it may be another, which is connected */
		if (nn_shared_of(sk) == g->group)
			found = nn_shared_note(sk, n);
		bpf_sk_release(sk);
	}
	if (v6)
		t->ipv6.sport = port;
	else
		t->ipv4.sport = port;
	return found;
}

/* Returns whether one was found. Not static: the verifier then looks at it
 * once.
 */
__noinline int nn_shared_path(struct __sk_buff *skb, struct bpf_sock_tuple *t,
			      const struct nn_shared_sought *g,
			      struct nn_whose *path)
{
	__u64 now_ns = bpf_ktime_get_ns(), age_ns, which;
	struct nn_shared *n;
	bool known;

	if (!skb || !t || !g || !path)
		return 0;
	which = g->group;
	n = bpf_map_lookup_elem(&shared, &which);
	if (!g->look) {
		known = n && n->path.hops[0].node;
		if (known)
			*path = n->path;
		return known;
	}
	if (!n) {
		bpf_map_update_elem(&shared, &which, &nn_shared_none,
				    BPF_NOEXIST);
		n = bpf_map_lookup_elem(&shared, &which);
		if (!n)
			return 0;
	}
	known = n->path.hops[0].node && n->epoch == nn_epoch();
	age_ns = now_ns - n->found_ns;
	if (age_ns >= (known ? NN_SHARED_FOUND_NS : NN_SHARED_NOT_FOUND_NS)) {
		if (nn_shared_look(skb, t, g, n)) {
			n->epoch = nn_epoch();
			n->found_ns = now_ns;
			known = true;
		} else if (!known || age_ns >= NN_SHARED_LOST_NS) {
			n->path.hops[0].node = 0;
			n->found_ns = now_ns;
			known = false;
		}
	}
	if (known)
		*path = n->path;
	return known;
}

#endif
