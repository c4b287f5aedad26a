/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file applies rules for a part of the traffic, selected by the peer's
 * address and the service's port. The first rule that matches counts for each
 * owner. The nodes of these rules come first on a socket's path, after its own
 * node. Rules are looked up when the path is made or the peer becomes known,
 * never for a packet.
 */
#ifndef NETNICE_DESTINATION_H
#define NETNICE_DESTINATION_H

#include "destination_memo.h"

#define NN_DESTINATION_BITS (32 + 128)

/* The node of a rule, if it holds for a process of that path. */
__noinline int nn_destination_used(struct nn_asked *a, __u32 rule,
				   struct nn_hop *found)
{
	struct nn_destination_use use = {.rule = rule};
	struct nn_hop *hop;

	if (!a || !found)
		return 0;
	if (rule & NN_RULE_EVERYBODY) {
		hop = bpf_map_lookup_elem(&destination_uses, &use);
		if (hop)
			*found = *hop;
		return !!hop;
	}
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		use.scope = a->node[i];
		if (!use.scope)
			break;
		hop = bpf_map_lookup_elem(&destination_uses, &use);
		if (hop) {
			*found = *hop;
			return 1;
		}
	}
	return 0;
}

/* Whether a rule is for the protocol of a socket. */
static __always_inline bool nn_destination_speaks(__u32 rule, __u8 protocol)
{
	if (rule & NN_RULE_TCP)
		return protocol == IPPROTO_TCP;
	return !(rule & NN_RULE_UDP) || protocol == IPPROTO_UDP;
}

/* The node of the first of an owner's rules that matches, none = 0. Not static:
 * the verifier then looks at it once. */
__noinline int nn_destination_find(struct nn_asked *a, __u32 book,
				   struct nn_hop *found)
{
	struct nn_destination_key key = {.prefixlen = NN_DESTINATION_BITS,
					 .book = book};
	struct nn_destination *d;

	if (!a || !found)
		return 0;
	__builtin_memcpy(key.addr, a->peer, sizeof(key.addr));
	d = bpf_map_lookup_elem(&destinations, &key);
	if (!d)
		return 0;
	for (__u32 i = 0; i < NN_DESTINATION_ENTRIES; i++) {
		struct nn_destination_entry *e = &d->entries[i];

		if (!e->rule)
			break;
		if (a->service_port < e->port_from ||
		    a->service_port > e->port_to ||
		    !nn_destination_speaks(e->rule, a->protocol))
			continue;
		if (nn_destination_used(a, e->rule, found))
			return 1;
	}
	return 0;
}

/* Where the path begins that follows from the process alone. */
static __always_inline __u32 nn_path_skip(const struct nn_socket *s)
{
	__u32 skip = 0;

	if (s->own.node && s->path[0].node == s->own.node)
		skip++;
	for (__u32 o = 0; o < NN_OWNERS; o++)
		if (s->to[o].node && s->path[skip].node == s->to[o].node)
			skip++;
	return skip;
}

static __always_inline void nn_path_plain(struct nn_socket *s,
					  struct nn_path *path)
{
	__u32 skip = nn_path_skip(s);

	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 at = i + skip;

		if (at >= NN_PATH_MAX)
			break;
		path->hops[i] = s->path[at & (NN_PATH_MAX - 1)];
	}
}

static __always_inline void nn_destined_ask(const struct nn_socket *s,
					    const struct nn_policy *p,
					    struct nn_asked *a)
{
	__u32 skip = nn_path_skip(s);

	__builtin_memcpy(a->peer, s->peer, sizeof(a->peer));
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 at = i + skip;

		a->node[i] = at < NN_PATH_MAX
				     ? s->path[at & (NN_PATH_MAX - 1)].node
				     : 0;
	}
	a->epoch = *(volatile const __u32 *)&p->epoch;
	a->book = s->tgid ? s->uid : NN_BOOK_ADMIN;
	a->service_port = s->service_port;
	a->protocol = s->protocol;
}

/* Put a node before the others. If there are too many nodes and this one is the
 * administrator's, one that only a user set goes. */
__noinline int nn_path_begin(struct nn_path *path, __u32 node, __u32 generation,
			     __u32 owner)
{
	if (!path || !node)
		return 0;
	if (path->hops[NN_PATH_MAX - 1].node) {
		nn_fault(NN_FAULT_PATH_FULL);
		if (owner != NN_OWNER_ADMIN || !nn_hop_yields(path))
			return 0;
	}
	for (int i = NN_PATH_MAX - 1; i > 0; i--)
		path->hops[i] = path->hops[i - 1];
	path->hops[0].node = node;
	path->hops[0].generation = generation;
	return 1;
}

/* Take a node from the pool for an address; 0 = the pool is empty. If several
 * processors find the same node, only one of them deletes it. */
__noinline int nn_store_take(struct nn_hop *each, struct nn_hop *taken)
{
	struct nn_stored at = {};
	struct nn_hop *hop;

	if (!each || !taken)
		return 0;
	at.node = each->node;
	at.generation = each->generation;
	for (__u32 i = 0; i < NN_STORE; i++) {
		at.slot = i;
		hop = bpf_map_lookup_elem(&stored, &at);
		if (!hop)
			continue;
		*taken = *hop;
		if (!bpf_map_delete_elem(&stored, &at))
			return 1;
	}
	taken->node = taken->generation = 0;
	return 0;
}

/* Note an address that is sent to, for the user side: a socket that sends to
 * several has only the last one in its own state. */
static __always_inline void nn_peer_note(const struct nn_peer_met *met,
					 __u32 netns)
{
	__u32 *noted = bpf_map_lookup_elem(&peers_noted, met);

	if (!noted || (netns && *noted != netns))
		bpf_map_update_elem(&peers_noted, met, &netns, BPF_ANY);
}

/* A node with per-peer limits has a node for each address: this function
 * returns that of the address. The address gets it at first contact, at once if
 * the pool has one. Then the user side makes it a limit like others, and puts
 * another node in the pool. */
__noinline int nn_each_own(struct nn_socket *s, struct nn_hop *hop)
{
	struct nn_peer_met met = {};
	struct nn_hop own = {}, *had;
	__u32 event = NN_EVENT_ARM, words[4];
	struct nn_node *n;

	if (!s || !hop)
		return 0;
	n = nn_node_get(hop->node, hop->generation);
	if (!n || !(n->flags & (NN_NODE_EACH | NN_NODE_NOTES)))
		return 0;
	met.node = hop->node;
	met.generation = hop->generation;
	__builtin_memcpy(words, s->peer, sizeof(words));
	if (n->flags & NN_NODE_NOTES) {
		__builtin_memcpy(met.peer, words, sizeof(words));
		nn_peer_note(&met, s->out_netns);
		return 0;
	}
	if (words[0] || words[1] || words[2] != bpf_htonl(0xffff))
		words[2] = words[3] = 0;
	__builtin_memcpy(met.peer, words, sizeof(words));
	had = bpf_map_lookup_elem(&peers_met, &met);
	if (!had) {
		nn_store_take(hop, &own);
		/* another was first: the user side finds the node taken */
		if (!bpf_map_update_elem(&peers_met, &met, &own, BPF_NOEXIST)) {
			if (!own.node)
				nn_fault(NN_FAULT_STORE_EMPTY);
			if (bpf_ringbuf_output(&events, &event, sizeof(event),
					       0))
				nn_fault(NN_FAULT_EVENT_LOST);
		}
		had = bpf_map_lookup_elem(&peers_met, &met);
	}
	if (had && nn_node_get(had->node, had->generation))
		*hop = *had;
	return 0;
}

/* Put the nodes for a socket's peer on its path, instead of the earlier ones. A
 * hook that runs meanwhile may miss a node, for one packet. */
__noinline int nn_destined(struct nn_socket *s)
{
	struct nn_policy *p = nn_policy();
	struct nn_hop admin = {}, user = {};
	union { /* one after the other: stacks are short */
		struct nn_asked asked;
		struct nn_path path;
	} u = {};
	__u32 epoch;
	bool own;

	if (!s || !p || !s->peer_known || s->flags & NN_SOCK_PROBES)
		return 0;
	if (!p->destinations && !s->to[NN_OWNER_ADMIN].node &&
	    !s->to[NN_OWNER_USER].node)
		return 0;
	epoch = *(volatile __u32 *)&s->epoch;
	own = s->own.node && s->path[0].node == s->own.node;
	nn_destined_ask(s, p, &u.asked);
	if (p->destinations && !nn_memo_get(&u.asked, &admin, &user)) {
		nn_destination_find(&u.asked, NN_BOOK_ADMIN, &admin);
		if (u.asked.book != NN_BOOK_ADMIN)
			nn_destination_find(&u.asked, u.asked.book, &user);
		nn_memo_put(&u.asked, &admin, &user);
	}
	__builtin_memset(&u.path, 0, sizeof(u.path));
	nn_path_plain(s, &u.path);
	if (user.node == admin.node)
		user.node = 0;
	nn_each_own(s, &admin);
	nn_each_own(s, &user);
	if (!nn_path_begin(&u.path, user.node, user.generation, NN_OWNER_USER))
		user.node = 0;
	if (!nn_path_begin(&u.path, admin.node, admin.generation,
			   NN_OWNER_ADMIN))
		admin.node = 0;
	/* a user's that had to go was the first */
	if (admin.node && user.node && u.path.hops[1].node != user.node)
		user.node = 0;
	if (own && !nn_path_begin(&u.path, s->own.node, s->own.generation,
				  NN_OWNER_USER))
		own = false;
	/* The path was made again meanwhile, by later rules than these: the
	 * caller may have been interrupted. */
	if (*(volatile __u32 *)&s->epoch != epoch)
		return 0;
	s->to[NN_OWNER_ADMIN] = admin;
	s->to[NN_OWNER_USER] = user;
	for (__u32 i = 0; i < NN_PATH_MAX; i++)
		s->path[i] = u.path.hops[i];
	return 1;
}

/* --- the peer becomes known --- */

static __always_inline void nn_peer_mapped(__u8 *peer, __u32 ip4)
{
	__u32 words[4] = {0, 0, bpf_htonl(0xffff), ip4};

	__builtin_memcpy(peer, words, sizeof(words));
}

/* Of a TCP socket, in sockops: it connects, or was accepted. */
static __always_inline void nn_peer_connected(struct nn_socket *s,
					      struct bpf_sock *sk,
					      bool accepted)
{
	if (sk->family == AF_INET6) {
		__u32 words[4] = {sk->dst_ip6[0], sk->dst_ip6[1],
				  sk->dst_ip6[2], sk->dst_ip6[3]};

		__builtin_memcpy(s->peer, words, sizeof(words));
	} else {
		nn_peer_mapped(s->peer, sk->dst_ip4);
	}
	s->service_port = accepted ? sk->src_port : bpf_ntohs(sk->dst_port);
	s->protocol = IPPROTO_TCP;
	s->peer_known = 1;
	nn_destined(s);
}

/* Of a UDP socket, in the hooks of its calls: it connects, or sends to
 * somebody; or of another by its packet (packet_peer.h). True = to another than
 * before. */
static __always_inline bool nn_peer_called(struct nn_socket *s,
					   const __u32 *words, __u16 port,
					   __u8 protocol)
{
	__u32 before[4];

	__builtin_memcpy(before, s->peer, sizeof(before));
	if (s->peer_known && s->protocol == protocol &&
	    s->service_port == port && before[0] == words[0] &&
	    before[1] == words[1] && before[2] == words[2] &&
	    before[3] == words[3])
		return false;
	__builtin_memcpy(s->peer, words, sizeof(before));
	s->service_port = port;
	s->protocol = protocol;
	s->peer_known = 1;
	nn_destined(s);
	return true;
}

/* Its port was bound by somebody, and not by itself: a listener. Only of what
 * was set up unseen. */
static __always_inline bool nn_was_accepted(struct sock *sk)
{
	struct inet_connection_sock *icsk = (void *)sk;
	struct inet_bind_bucket *bucket = BPF_CORE_READ(icsk, icsk_bind_hash);

	if (!bucket || (signed char)BPF_CORE_READ(bucket, fastreuse) < 0)
		return false;
	return !(BPF_CORE_READ_BITFIELD_PROBED(sk, sk_userlocks) &
		 SOCK_BINDPORT_LOCK);
}

/* Of a socket that is found open. */
static __noinline int nn_peer_found(struct nn_socket *s, struct sock *sk)
{
	__u16 protocol, port;

	if (!s || (s->peer_known && s->protocol))
		return 0;
	protocol = BPF_CORE_READ(sk, sk_protocol);
	port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	if (!port || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return 0;
	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET6)
		BPF_CORE_READ_INTO(&s->peer, sk, __sk_common.skc_v6_daddr);
	else
		nn_peer_mapped(s->peer,
			       BPF_CORE_READ(sk, __sk_common.skc_daddr));
	s->service_port = bpf_ntohs(port);
	if (protocol == IPPROTO_TCP && nn_was_accepted(sk))
		s->service_port = BPF_CORE_READ(sk, __sk_common.skc_num);
	s->protocol = protocol;
	s->peer_known = 1;
	nn_destined(s);
	return 1;
}

#endif
