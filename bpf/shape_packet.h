/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A received packet: what it is, and whose. Headers are read from the network
 * header on, so that it does not matter what the device puts before it.
 */
#ifndef NETNICE_SHAPE_PACKET_H
#define NETNICE_SHAPE_PACKET_H

#include "frame.h"
#include "identity.h"
#include "shape_maps.h"

#define IPPROTO_HOPOPTS	 0
#define IPPROTO_UDP	 17
#define IPPROTO_ROUTING	 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_DSTOPTS	 60
#define NN_EXTENSIONS	 4 /* IPv6 headers before TCP or UDP */
#define NN_IP_OFFSET	 0x1fff
#define NN_IP_MORE	 0x2000
#define NN_TCP_FIN	 0x01
#define NN_TCP_SYN	 0x02
#define NN_TCP_RST	 0x04

struct nn_packet {
	__u32 source[4]; /* IPv4: the first */
	__u32 destination[4];
	struct nn_ports ports;
	__u32 fragment_id;
	__u32 ip_bytes;
	__u16 offset; /* of the transport header, from the network header on */
	__u16 fragment_offset;
	__u8 protocol;
	__u8 v6;
	__u8 more;	       /* fragments follow */
	__u8 flags;	       /* TCP's */
	__u16 transport_bytes; /* of the transport header */
	__u16 pad;
};

static __always_inline bool nn_load(struct __sk_buff *skb, __u32 offset,
				    void *to, __u32 bytes)
{
	return !bpf_skb_load_bytes_relative(skb, offset, to, bytes,
					    BPF_HDR_START_NET);
}

struct nn_ipv4_header {
	__u8 version_words, tos;
	__be16 total, id, fragment;
	__u8 ttl, protocol;
	__be16 sum;
	__u32 source, destination;
};

static __always_inline bool nn_parse_v4(struct __sk_buff *skb,
					struct nn_packet *p)
{
	struct nn_ipv4_header h;
	__u16 fragment;

	if (!nn_load(skb, 0, &h, sizeof(h)))
		return false;
	fragment = bpf_ntohs(h.fragment);
	p->source[0] = h.source;
	p->destination[0] = h.destination;
	p->offset = (h.version_words & 15) * 4;
	p->protocol = h.protocol;
	p->fragment_offset = fragment & NN_IP_OFFSET;
	p->more = !!(fragment & NN_IP_MORE);
	p->fragment_id = h.id;
	p->ip_bytes = bpf_ntohs(h.total);
	return true;
}

struct nn_ipv6_header {
	__be32 flow;
	__be16 payload;
	__u8 next, hops;
	__u32 source[4], destination[4];
};

struct nn_ipv6_extension {
	__u8 next, words;
	__be16 fragment;
	__u32 id;
};

static __always_inline bool nn_parse_v6(struct __sk_buff *skb,
					struct nn_packet *p)
{
	struct nn_ipv6_header h;
	struct nn_ipv6_extension e;

	if (!nn_load(skb, 0, &h, sizeof(h)))
		return false;
	for (int i = 0; i < 4; i++) {
		p->source[i] = h.source[i];
		p->destination[i] = h.destination[i];
	}
	p->v6 = 1;
	p->ip_bytes = sizeof(h) + bpf_ntohs(h.payload);
	p->offset = sizeof(h);
	p->protocol = h.next;
	for (int i = 0; i < NN_EXTENSIONS; i++) {
		if (p->protocol != IPPROTO_HOPOPTS &&
		    p->protocol != IPPROTO_ROUTING &&
		    p->protocol != IPPROTO_DSTOPTS &&
		    p->protocol != IPPROTO_FRAGMENT)
			return true;
		if (!nn_load(skb, p->offset, &e, sizeof(e)))
			return false;
		if (p->protocol == IPPROTO_FRAGMENT) {
			p->fragment_offset = bpf_ntohs(e.fragment) >> 3;
			p->more = bpf_ntohs(e.fragment) & 1;
			p->fragment_id = e.id;
			p->offset += sizeof(e);
		} else {
			p->offset += (e.words + 1) * 8;
		}
		p->protocol = e.next;
		if (p->fragment_offset)
			return true;
	}
	return false;
}

/* True if it is of a kind that a socket can be found for. */
static __always_inline bool nn_parse(struct __sk_buff *skb, struct nn_packet *p)
{
	__u8 rest[10];

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!nn_parse_v4(skb, p))
			return false;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!nn_parse_v6(skb, p))
			return false;
	} else {
		return false;
	}
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return false;
	if (p->fragment_offset)
		return true;
	if (!nn_load(skb, p->offset, &p->ports, sizeof(p->ports)))
		return false;
	p->transport_bytes = 8;
	if (p->protocol == IPPROTO_TCP) {
		if (!nn_load(skb, p->offset + 4, rest, sizeof(rest)))
			return false;
		p->transport_bytes = (rest[8] >> 4) * 4;
		p->flags = rest[9];
	}
	return true;
}

/* For no limited socket, by a first look at what most packets are: ports right
 * after a plain IP header. Others are parsed. */
static __always_inline bool nn_packet_free(struct __sk_buff *skb)
{
	const struct nn_policy *policy = nn_policy();
	struct {
		struct nn_ipv6_header ip;
		struct nn_ports ports;
	} v6;
	struct {
		struct nn_ipv4_header ip;
		struct nn_ports ports;
	} v4;

	/* what is nobody's is the host's, and needs no mark */
	if (!policy || policy->kinds & 1 << NN_NODE_HOST)
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (!nn_load(skb, 0, &v4, sizeof(v4)) ||
		    (v4.ip.version_words & 15) != 5 ||
		    v4.ip.fragment & bpf_htons(NN_IP_OFFSET) ||
		    (v4.ip.protocol != IPPROTO_TCP &&
		     v4.ip.protocol != IPPROTO_UDP))
			return false;
		return nn_port_free(bpf_ntohs(v4.ports.destination));
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (!nn_load(skb, 0, &v6, sizeof(v6)) ||
		    (v6.ip.next != IPPROTO_TCP && v6.ip.next != IPPROTO_UDP))
			return false;
		return nn_port_free(bpf_ntohs(v6.ports.destination));
	}
	return false;
}

/* IP bytes of a packet, or of all the segments that it stands for. */
static __always_inline __u64 nn_packet_bytes(const struct __sk_buff *skb,
					     const struct nn_packet *p,
					     __u32 link_header, __u32 *segments)
{
	__u64 bytes = skb->len - link_header;

	*segments = skb->gso_segs > 1 ? skb->gso_segs : 1;
	return bytes +
	       (__u64)(*segments - 1) * (p->offset + p->transport_bytes);
}

/* An acknowledgement, or the opening of a connection: they never wait. A FIN or
 * RST has to come after the data. */
static __always_inline bool nn_packet_empty(const struct nn_packet *p,
					    __u64 bytes)
{
	return p->protocol == IPPROTO_TCP && !p->fragment_offset &&
	       !(p->flags & (NN_TCP_FIN | NN_TCP_RST)) &&
	       bytes <= (__u64)p->offset + p->transport_bytes;
}

/* As it comes in, for nobody who is known: counted while a limit stands on the
 * host, as else not all of it is looked at. What a device puts before it does
 * not matter here: to ask that would cost those who are forwarded. */
static __always_inline void nn_unknown_came(const struct __sk_buff *skb,
					    const struct nn_packet *p,
					    __u32 kind)
{
	__u32 segments = skb->gso_segs > 1 ? skb->gso_segs : 1;

	if (!nn_host_limited())
		return;
	nn_unknown(kind,
		   p->ip_bytes + (__u64)(segments - 1) *
					 (p->offset + p->transport_bytes),
		   segments);
}

static __always_inline struct bpf_sock *nn_packet_socket(struct __sk_buff *skb,
							 struct nn_packet *p,
							 __s32 netns_id)
{
	struct bpf_sock_tuple t = {};
	__u32 size = p->v6 ? sizeof(t.ipv6) : sizeof(t.ipv4);

	if (p->v6) {
		for (int i = 0; i < 4; i++) {
			t.ipv6.saddr[i] = p->source[i];
			t.ipv6.daddr[i] = p->destination[i];
		}
		t.ipv6.sport = p->ports.source;
		t.ipv6.dport = p->ports.destination;
	} else {
		t.ipv4.saddr = p->source[0];
		t.ipv4.daddr = p->destination[0];
		t.ipv4.sport = p->ports.source;
		t.ipv4.dport = p->ports.destination;
	}
	if (p->protocol == IPPROTO_TCP)
		return bpf_sk_lookup_tcp(skb, &t, size, netns_id, 0);
	return bpf_sk_lookup_udp(skb, &t, size, netns_id, 0);
}

/* A tunnel's socket, whose packets the kernel unpacks: what is inside comes in
 * once more, by the tunnel's device, and is somebody's there. */
static __always_inline bool nn_socket_tunnel(const struct nn_packet *p,
					     struct bpf_sock *sk)
{
	struct bpf_sock *volatile known = sk;
	struct udp_sock *u = NULL;
	void *unpack = NULL;

	if (p->protocol != IPPROTO_UDP)
		return false;
	/* the address alone: no arithmetic is allowed on what is known to be a
	 * socket */
	bpf_probe_read_kernel(&u, sizeof(u), (void *)&known);
	return !bpf_core_read(&unpack, sizeof(unpack), &u->encap_rcv) && unpack;
}

static __always_inline void nn_kept_key(struct __sk_buff *skb,
					const struct nn_packet *p,
					const struct nn_slot *slot,
					struct nn_kept *k)
{
	for (int i = 0; i < 4; i++) {
		k->source[i] = p->source[i];
		k->destination[i] = p->destination[i];
	}
	k->protocol = p->protocol;
	k->netns = slot ? slot->netns : nn_packet_netns(skb);
	if (p->fragment_offset || p->more)
		k->id = p->fragment_id;
	else
		k->ports = p->ports;
}

static __always_inline bool nn_path_kept(struct __sk_buff *skb,
					 const struct nn_packet *p,
					 const struct nn_slot *slot,
					 struct nn_path *path)
{
	struct nn_kept k = {};
	struct nn_path *known;

	nn_kept_key(skb, p, slot, &k);
	known = bpf_map_lookup_elem(&kept, &k);
	if (!known)
		return false;
	*path = *known;
	return true;
}

/* The nodes that hold for the socket that the packet is for. What is for no
 * socket here (forwarded, refused, the opening of a connection) has none. A
 * socket whose owner is unknown belongs to the host. slot: where the packet
 * came from, NULL if it is there now. */
static __always_inline bool nn_packet_path(struct __sk_buff *skb,
					   struct nn_packet *p,
					   const struct nn_slot *slot,
					   struct nn_path *path)
{
	struct nn_policy *policy;
	struct nn_kept k = {};
	struct nn_socket *s;
	struct bpf_sock *sk;
	bool keep = p->more, unknown = false;

	if (p->fragment_offset)
		return nn_path_kept(skb, p, slot, path);
	sk = nn_packet_socket(skb, p,
			      slot ? slot->netns_id : BPF_F_CURRENT_NETNS);
	if (!sk) {
		if (slot)
			return nn_path_kept(skb, p, slot, path);
		nn_unknown_came(skb, p, NN_UNKNOWN_CAME_NOBODY);
		return false;
	}
	if (sk->state == TCP_LISTEN) {
		bpf_sk_release(sk);
		return slot && nn_path_kept(skb, p, slot, path);
	}
	/* it is found by what comes from its device only */
	keep |= sk->bound_dev_if && !slot;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (s) {
		for (int i = 0; i < NN_PATH_MAX; i++)
			path->hops[i] = s->path[i];
		unknown = nn_socket_nobodys(s);
	} else if (!nn_socket_tunnel(p, sk)) {
		struct nn_node *n = NULL;

		policy = nn_policy();
		if (policy && policy->kinds & 1 << NN_NODE_HOST)
			n = bpf_map_lookup_elem(&nodes, &policy->host_node);
		if (n) {
			path->hops[0].node = policy->host_node;
			path->hops[0].generation = n->generation;
			unknown = true;
		}
	}
	if (unknown && !slot)
		nn_unknown_came(skb, p, NN_UNKNOWN_CAME_SOCKET);
	bpf_sk_release(sk);
	if (!path->hops[0].node)
		return false;
	if (keep) {
		nn_kept_key(skb, p, slot, &k);
		bpf_map_update_elem(&kept, &k, path, BPF_ANY);
	}
	return true;
}

#endif
