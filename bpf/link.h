/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Limits on a device: its node comes last on the paths of the sockets that send
 * by it. The mark that a socket's packets carry (DSCP) is stored with that. A
 * socket's device is looked up where the path is made, as a connection is set
 * up, and at each packet in the egress hook, by one comparison. Ingress counts
 * for the device by which the answers leave.
 */
#ifndef NETNICE_LINK_H
#define NETNICE_LINK_H

#include "destination.h"
#include "frame.h"

static __always_inline __u32 nn_hop_dscp(const struct nn_hop *hop)
{
	struct nn_node *n = nn_node_get(hop->node, hop->generation);

	return n ? n->dscp : 0;
}

/* Put the node of a socket's device on its path, instead of the former's. A
 * hook that runs meanwhile may miss a node, for one packet. */
__noinline int nn_linked(struct nn_socket *s)
{
	struct nn_policy *p = nn_policy();
	struct nn_link_key key;
	struct nn_path path = {};
	struct nn_hop hop;
	__u32 n = 0, *node = NULL;

	if (!s || !p)
		return 0;
	if (!s->link.node && !(p->kinds & 1 << NN_NODE_LINK) && !p->marks &&
	    !s->dscp)
		return 0;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		hop = s->path[i];
		if (!hop.node || hop.node == s->link.node)
			break;
		path.hops[i] = hop;
		n = i + 1;
	}
	s->link.node = 0;
	key.netns = s->out_netns;
	key.ifindex = s->out_ifindex;
	if (key.ifindex)
		node = bpf_map_lookup_elem(&links, &key);
	if (node)
		n = nn_hop_add(&path, n, *node);
	if (node && n) {
		hop = path.hops[(n - 1) & (NN_PATH_MAX - 1)];
		if (hop.node == *node)
			s->link = hop;
	}
	s->dscp = 0;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		s->path[i] = path.hops[i];
		if (!s->dscp && p->marks)
			s->dscp = nn_hop_dscp(&path.hops[i]);
	}
	return 1;
}

/* A packet of a socket is about to leave by a device. */
static __always_inline void nn_sends_by(struct __sk_buff *skb,
					struct nn_socket *s)
{
	if (!s || s->out_ifindex == skb->ifindex)
		return;
	s->out_ifindex = skb->ifindex;
	s->out_netns = nn_packet_netns(skb);
	nn_linked(s);
}

/* The device of a connection's route, before its first packet. */
static __noinline __attribute__((unused)) int nn_leaves_by(struct nn_socket *s,
							   struct sock *sk)
{
	struct net_device *dev;
	__u32 ifindex;

	if (!s || !sk)
		return 0;
	dev = BPF_CORE_READ(sk, sk_dst_cache, dev);
	if (!dev)
		return 0;
	ifindex = BPF_CORE_READ(dev, ifindex);
	if (ifindex == s->out_ifindex)
		return 0;
	s->out_ifindex = ifindex;
	s->out_netns = BPF_CORE_READ(dev, nd_net.net, ns.inum);
	nn_linked(s);
	return 1;
}

#endif
