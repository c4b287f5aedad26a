/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file finds the owner of a received packet: the nodes on the path of its
 * socket. It looks the socket up by the packet's addresses, or by the addresses
 * after NAT.
 */
#ifndef NETNICE_SHAPE_OWNER_H
#define NETNICE_SHAPE_OWNER_H

#include "identity.h"
#include "inside.h"
#include "shape_accepted.h"
#include "shape_group.h"
#include "shape_kept.h"
#include "shape_nat.h"
#include "shape_packet.h"
#include "shape_shared.h"

/* How long a UDP port counts as one that nobody limits. */
#define NN_UDP_UNLIMITED 1000U

/* In units of 2^20 ns, by the clock that is read fastest. */
static __always_inline __u32 nn_now_coarse(void)
{
	return bpf_ktime_get_coarse_ns() >> 20;
}

/* nn_packet_netns where the kernel lets a program read its structures. */
static __always_inline __u32 nn_arrived_netns(struct __sk_buff *skb)
{
	struct sk_buff *b;

	if (!inside_known)
		return nn_packet_netns(skb);
	b = bpf_cast_to_kern_ctx(skb);
	return b->dev->nd_net.net->ns.inum;
}

/* A UDP socket may have got its port without that anybody was told: by connect,
 * or by a datagram that was refused. So a port that is not marked as a limited
 * socket's is free only if a look showed whose it is, not long ago. A port that
 * nobody has may have a socket at the next moment: it is free only for what is
 * forwarded to that address, over IPv4. to: the address, 0 = IPv6's. */
static __always_inline bool nn_udp_free(struct __sk_buff *skb, __u32 port,
					__u32 to)
{
	struct nn_udp_unlimited *u = bpf_map_lookup_elem(&udp_unlimited, &port);
	__u32 netns;

	/* the clock's word wraps around */
	if (!u || u->until - nn_now_coarse() - 1 >= NN_UDP_UNLIMITED)
		return false;
	netns = nn_arrived_netns(skb);
	return u->netns == netns || (to && u->netns == (netns ^ to));
}

/* to: the address that it is for alone, 0 = all of this machine's. */
static __always_inline void nn_udp_free_for(struct __sk_buff *skb,
					    const struct nn_packet *p, __u32 to)
{
	__u32 port = bpf_ntohs(p->ports.destination);
	struct nn_udp_unlimited *u = bpf_map_lookup_elem(&udp_unlimited, &port);

	if (!u)
		return;
	u->netns = nn_arrived_netns(skb) ^ to;
	u->until = nn_now_coarse() + NN_UDP_UNLIMITED;
}

/* A port that no limited socket has, unless NAT leads it to one: a packet now
 * and then is looked after, and marks the port if so. */
static __always_inline bool nn_named_free(struct __sk_buff *skb, __be16 port,
					  __u32 protocol, __u32 to)
{
	__u32 zero = 0, at = bpf_ntohs(port);
	struct nn_unseen *u;

	if (!nn_port_free(at) ||
	    (protocol == IPPROTO_UDP && !nn_udp_free(skb, at, to)))
		return false;
	if (!nat_known)
		return true;
	u = bpf_map_lookup_elem(&unseen, &zero);
	if (!u)
		return true;
	asm volatile("" : "+r"(at)); /* as in ports.h */
	at &= NN_NAT_UNSEEN_PORTS - 1;
	u->bytes[at] += skb->len;
	if (u->bytes[at] < NN_NAT_UNSEEN_BYTES)
		return true;
	u->bytes[at] = 0;
	return false;
}

struct nn_plain_v4 {
	struct nn_ipv4_header ip;
	struct nn_ports ports;
};

struct nn_plain_v6 {
	struct nn_ipv6_header ip;
	struct nn_ports ports;
};

/* nn_plain_v4 loads the headers that nn_packet_free needs. It returns false if
 * they cannot be read. */
static __always_inline bool nn_plain_v4(struct __sk_buff *skb,
					struct nn_plain_v4 *p)
{
	void *h, *ip, *ports;

	if (!inside_known)
		return nn_load(skb, 0, p, sizeof(*p));
	h = nn_network_header(skb, sizeof(*p));
	if (!h)
		return false;
	ip = bpf_rdonly_cast(h, bpf_core_type_id_kernel(struct iphdr));
	ports = bpf_rdonly_cast(h + sizeof(p->ip),
				bpf_core_type_id_kernel(struct udphdr));
	p->ip.version_words = *(__u8 *)ip;
	p->ip.fragment = *(__be16 *)(ip + 6);
	p->ip.protocol = *(__u8 *)(ip + 9);
	p->ip.destination = *(__u32 *)(ip + 16);
	p->ports.destination = *(__be16 *)(ports + 2);
	return true;
}

static __always_inline bool nn_plain_v6(struct __sk_buff *skb,
					struct nn_plain_v6 *p)
{
	void *h, *ip, *ports;

	if (!inside_known)
		return nn_load(skb, 0, p, sizeof(*p));
	h = nn_network_header(skb, sizeof(*p));
	if (!h)
		return false;
	ip = bpf_rdonly_cast(h, bpf_core_type_id_kernel(struct ipv6hdr));
	ports = bpf_rdonly_cast(h + sizeof(p->ip),
				bpf_core_type_id_kernel(struct udphdr));
	p->ip.next = *(__u8 *)(ip + 6);
	p->ports.destination = *(__be16 *)(ports + 2);
	return true;
}

/* For no limited socket, by a first look at what most packets are: ports right
 * after a plain IP header. Others are parsed. */
static __always_inline bool nn_packet_free(struct __sk_buff *skb)
{
	struct nn_plain_v6 v6;
	struct nn_plain_v4 v4;

	/* traffic without an owner is the host's, and needs no mark */
	if (nn_host_limited())
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!nn_plain_v4(skb, &v4) || (v4.ip.version_words & 15) != 5 ||
		    v4.ip.fragment & bpf_htons(NN_IP_OFFSET) ||
		    (v4.ip.protocol != IPPROTO_TCP &&
		     v4.ip.protocol != IPPROTO_UDP))
			return false;
		return nn_named_free(skb, v4.ports.destination, v4.ip.protocol,
				     v4.ip.destination);
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!nn_plain_v6(skb, &v6) ||
		    (v6.ip.next != IPPROTO_TCP && v6.ip.next != IPPROTO_UDP))
			return false;
		return nn_named_free(skb, v6.ports.destination, v6.ip.next, 0);
	}
	return false;
}

/* nn_unknown_came counts an arriving packet without a known owner. It counts
 * only while the host has a limit, as else not all traffic is looked at. The
 * link header is left out: to ask for its size would slow forwarded packets. */
static __always_inline void nn_unknown_came(const struct __sk_buff *skb,
					    const struct nn_packet *p,
					    __u32 kind)
{
	__u32 segments = nn_packet_segments(skb);

	if (!nn_host_limited())
		return;
	nn_unknown(kind,
		   p->ip_bytes + (__u64)(segments - 1) *
					 (p->offset + p->transport_bytes),
		   segments);
}

/* The addresses of a packet; returns their size. */
static __always_inline __u32 nn_packet_tuple(const struct nn_packet *p,
					     struct bpf_sock_tuple *t)
{
	if (p->v6) {
		for (int i = 0; i < 4; i++) {
			t->ipv6.saddr[i] = p->source[i];
			t->ipv6.daddr[i] = p->destination[i];
		}
		t->ipv6.sport = p->ports.source;
		t->ipv6.dport = p->ports.destination;
		return sizeof(t->ipv6);
	}
	t->ipv4.saddr = p->source[0];
	t->ipv4.daddr = p->destination[0];
	t->ipv4.sport = p->ports.source;
	t->ipv4.dport = p->ports.destination;
	return sizeof(t->ipv4);
}

static __always_inline struct bpf_sock *nn_tuple_socket(
	struct __sk_buff *skb, __u32 protocol, struct bpf_sock_tuple *t,
	__u32 size, __s32 netns_id)
{
	if (protocol == IPPROTO_TCP)
		return bpf_sk_lookup_tcp(skb, t, size, netns_id, 0);
	return bpf_sk_lookup_udp(skb, t, size, netns_id, 0);
}

/* nn_socket_tunnel tells whether a socket is a tunnel's. The inner packets
 * arrive once more at the tunnel's device, and have an owner there. */
static __always_inline bool nn_socket_tunnel(const struct nn_packet *p,
					     struct bpf_sock *sk)
{
	return p->protocol == IPPROTO_UDP && nn_unpacks(sk);
}

/* nn_path_of finds the nodes that limit the socket that was found by a packet's
 * addresses. A socket without a known owner belongs to the host, and then the
 * result is true. */
static __always_inline bool nn_path_of(struct __sk_buff *skb,
				       const struct nn_packet *p,
				       struct bpf_sock_tuple *t, __u32 size,
				       __s32 netns_id, struct bpf_sock *sk,
				       struct nn_whose *path)
{
	struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	struct nn_policy *policy;
	__u32 n = 0;

	if (!s && nn_stateless_any()) {
		s = nn_stateless_whole(sk);
		if (!s && p->protocol == IPPROTO_TCP)
			s = nn_accepted_by(skb, t, size, netns_id);
	}
	if (s) {
		for (int i = 0; i < NN_PATH_MAX; i++)
			path->hops[i] = s->path[i];
		path->child = s->child;
		return nn_socket_nobodys(s);
	}
	if (nn_socket_tunnel(p, sk))
		return false;
	if (p->protocol == IPPROTO_UDP && nn_stateless_any() &&
	    nn_stateless_lost(sk)) {
		path->hops[0].node = NN_KEPT_DROPPED;
		return false;
	}
	policy = nn_policy();
	if (policy && policy->kinds & 1 << NN_NODE_HOST)
		nn_whose_add(path, &n, policy->host_node);
	return n;
}

/* nn_packet_path for what has its ports. keep: its socket is not found by it
 * again. */
static __always_inline bool nn_path_found(struct __sk_buff *skb,
					  struct nn_packet *p,
					  const struct nn_slot *slot,
					  struct nn_whose *path, bool *keep)
{
	struct bpf_sock_tuple t = {};
	struct nn_shared_sought g = {};
	struct bpf_sock *sk;
	bool listens, led = false; /* by NAT */
	__u32 size;

	if (nn_for_group(skb, p)) {
		if (!slot)
			nn_unknown_came(skb, p, NN_UNKNOWN_CAME_NOBODY);
		return nn_group_path(skb, p, slot, path);
	}
	size = nn_packet_tuple(p, &t);
	g.size = size;
	g.look = !slot;
	g.netns_id = slot ? slot->netns_id : BPF_F_CURRENT_NETNS;
	sk = nn_tuple_socket(skb, p->protocol, &t, size, g.netns_id);
	listens = sk && sk->state == TCP_LISTEN;
	*keep |= listens & nat_known;
	if (listens) {
		/* Data that ends a handshake is for the listener, which has no
		 * other socket for it yet, unless NAT leads it elsewhere. */
		bool data = p->more ||
			    p->ip_bytes > (__u32)p->offset + p->transport_bytes;

		if (data && nat_known)
			led = slot || (!(p->flags & NN_TCP_SYN) &&
				       nn_nat(skb, p->protocol, &t, size));
		if (!data || led) {
			bpf_sk_release(sk);
			sk = NULL;
		}
	}
	if (sk) {
		/* it is found by what comes from its device only */
		*keep |= sk->bound_dev_if && !slot;
		if (nn_path_of(skb, p, &t, size, g.netns_id, sk, path) && !slot)
			nn_unknown_came(skb, p, NN_UNKNOWN_CAME_SOCKET);
		if (p->protocol == IPPROTO_UDP &&
		    nn_shared_free(&path->hops[0]))
			g.group = nn_shared_of(sk);
		if (g.group)
			nn_shared_path(skb, &t, &g, path);
		else if (p->protocol == IPPROTO_UDP && !slot &&
			 !path->hops[0].node)
			nn_udp_free_for(skb, p, 0);
		bpf_sk_release(sk);
		if (!path->hops[0].node)
			return false;
	}
	/* NAT may lead it to another, and a datagram although somebody here
	 * takes those to its port */
	if (slot || (sk && p->protocol == IPPROTO_TCP))
		return sk;
	if (!sk && p->protocol == IPPROTO_UDP && !p->v6 && !nn_is_local(skb, p))
		nn_udp_free_for(skb, p, p->destination[0]);
	if (!led &&
	    (p->flags & NN_TCP_SYN || !nn_nat(skb, p->protocol, &t, size))) {
		if (!sk && !listens)
			nn_unknown_came(skb, p, NN_UNKNOWN_CAME_NOBODY);
		return sk;
	}
	sk = nn_tuple_socket(skb, p->protocol, &t, size, BPF_F_CURRENT_NETNS);
	if (!sk) {
		nn_unknown_came(skb, p, NN_UNKNOWN_CAME_NOBODY);
		return false;
	}
	__builtin_memset(path, 0, sizeof(*path));
	if (sk->state != TCP_LISTEN)
		nn_path_of(skb, p, &t, size, BPF_F_CURRENT_NETNS, sk, path);
	bpf_sk_release(sk);
	*keep = true;
	if (path->hops[0].node)
		nn_port_limited(bpf_ntohs(p->ports.destination));
	return path->hops[0].node;
}

/* nn_packet_path finds the nodes that limit the packet's socket. A packet for
 * no socket here (forwarded, refused, the opening of a connection) has none.
 * slot is the device from which the packet came, NULL if it is there now. */
static __always_inline bool nn_packet_path(struct __sk_buff *skb,
					   struct nn_packet *p,
					   const struct nn_slot *slot,
					   struct nn_whose *path)
{
	bool keep = p->more;

	if (p->fragment_offset)
		return nn_path_kept(skb, p, slot, path);
	/* led elsewhere by NAT: another's socket would be found */
	if (slot && nat_known && p->protocol == IPPROTO_UDP &&
	    nn_path_kept(skb, p, slot, path))
		return true;
	if (!nn_path_found(skb, p, slot, path, &keep))
		return slot && !path->hops[0].node &&
		       nn_path_kept(skb, p, slot, path);
	if (keep)
		nn_path_store(skb, p, slot, path);
	return true;
}

#endif
