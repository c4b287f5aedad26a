/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* This file holds the common parts of programs on packets: frames, their
 * location, and their verdict. */
#ifndef NETNICE_FRAME_H
#define NETNICE_FRAME_H

#include "kernel.h"

#define TC_ACT_UNSPEC	  (-1) /* the next program or filter decides */
#define TC_ACT_SHOT	  2
#define ETH_P_IP	  0x0800
#define ETH_P_IPV6	  0x86dd
#define ETH_P_8021Q	  0x8100
#define ETH_P_ARP	  0x0806
#define ETH_HLEN	  14
#define NN_IPPROTO_ICMP	  1
#define NN_IPPROTO_IGMP	  2
#define NN_IPPROTO_ICMPV6 58

static __always_inline bool nn_is_control(__u32 protocol)
{
	return protocol == NN_IPPROTO_ICMP || protocol == NN_IPPROTO_IGMP ||
	       protocol == NN_IPPROTO_ICMPV6;
}

/* Read from the network header on; false: the packet is shorter. */
static __always_inline bool nn_load(struct __sk_buff *skb, __u32 offset,
				    void *to, __u32 bytes)
{
	return !bpf_skb_load_bytes_relative(skb, offset, to, bytes,
					    BPF_HDR_START_NET);
}

/* An extension header of IPv6; fragment and id are those of a fragment's. */
struct nn_ipv6_extension {
	__u8 next, words;
	__be16 fragment;
	__u32 id;
};

static __always_inline bool nn_is_extension(__u32 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_DSTOPTS || protocol == IPPROTO_FRAGMENT;
}

static __always_inline __u32
nn_extension_bytes(const struct nn_ipv6_extension *e, __u32 protocol)
{
	return protocol == IPPROTO_FRAGMENT ? sizeof(*e) : (e->words + 1) * 8;
}

/* The inode number of the namespace that the packet's device is in; 0 if it
 * cannot be read. No helper tells it to all kernels' programs on packets. */
static __always_inline __u32 nn_packet_netns(struct __sk_buff *skb)
{
	struct sk_buff *b = (void *)skb; /* true once it is loaded */
	struct net_device *dev = NULL;
	struct net *net = NULL;
	__u32 netns = 0;

	if (bpf_core_read(&dev, sizeof(dev), &b->dev) ||
	    bpf_core_read(&net, sizeof(net), &dev->nd_net.net) ||
	    bpf_core_read(&netns, sizeof(netns), &net->ns.inum))
		return 0;
	return netns;
}

/* The size of the packet's link header before IP, in bytes. */
static __always_inline __u32 nn_packet_header(struct __sk_buff *skb)
{
	struct sk_buff *b = (void *)skb; /* as above */
	struct net_device *dev = NULL;
	unsigned short bytes = 0;

	if (bpf_core_read(&dev, sizeof(dev), &b->dev) ||
	    bpf_core_read(&bytes, sizeof(bytes), &dev->hard_header_len))
		return 0;
	return bytes;
}

/* A device's packets whose link has no MAC header get one for the pair; the
 * kernel takes it off where they come back. */
static __always_inline bool nn_header_add(struct __sk_buff *skb)
{
	__be16 protocol = skb->protocol;

	return !bpf_skb_change_head(skb, ETH_HLEN, 0) &&
	       !bpf_skb_store_bytes(skb, ETH_HLEN - 2, &protocol,
				    sizeof(protocol), 0);
}

/* The number of segments that the packet stands for. */
static __always_inline __u32 nn_packet_segments(const struct __sk_buff *skb)
{
	return skb->gso_segs > 1 ? skb->gso_segs : 1;
}

#endif
