/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file meters packets that leave a limited device without a limited
 * socket: packets that are forwarded, answered by the kernel, or packed by
 * tunnels. They do not wait here. Their bytes reduce the rate at which programs
 * may send by the device. It also sets the DSCP (RFC 2474) of a node on the
 * packets of its sockets: on every device while some node has one.
 */
#ifndef NETNICE_METER_H
#define NETNICE_METER_H

#include "link.h"
#include "queued.h"

#define NN_IP_CHECKSUM 10 /* where it is in the header */
#define NN_TCP_HEADERS 52 /* IPv4 and TCP, with its usual options */

/* Take bytes off a node's clock of a direction; 1: once more, as nn_hop_turn.
 * Not static, as that. */
__noinline int nn_meter_turn(__u32 node, __u32 direction, __u64 rate,
			     __u64 bytes, __u32 calls)
{
	return nn_clock_pass(node, direction, rate, bytes, calls, true);
}

static __always_inline void nn_meter_charge(struct nn_node *n, __u32 node,
					    __u32 direction, __u64 bytes)
{
	__u64 rate = nn_ceiling(n, node, direction);

	if (!rate)
		return;
	for (__u32 i = 0; i <= NN_ADVANCE_CALLS; i++)
		if (!nn_meter_turn(node, direction, rate, bytes, i))
			break;
}

/* Give a packet another DSCP; its ECN bits stay. */
static __always_inline void nn_mark(struct __sk_buff *skb, __u32 dscp)
{
	__u32 at = nn_packet_header(skb);
	__be16 begin, marked;
	__u32 word, class;
	__u8 tos;

	if (bpf_skb_load_bytes(skb, at, &begin, sizeof(begin)))
		return;
	word = bpf_ntohs(begin);
	if (skb->protocol == bpf_htons(ETH_P_IP) && word >> 12 == 4) {
		tos = dscp << 2 | (word & 3);
		marked = bpf_htons((word & 0xff00) | tos);
		if (marked == begin)
			return;
		bpf_l3_csum_replace(skb, at + NN_IP_CHECKSUM, begin, marked,
				    sizeof(marked));
		bpf_skb_store_bytes(skb, at + 1, &tos, sizeof(tos), 0);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6) && word >> 12 == 6) {
		class = dscp << 2 | (word >> 4 & 3);
		marked = bpf_htons((word & 0xf00f) | class << 4);
		if (marked != begin)
			bpf_skb_store_bytes(skb, at, &marked, sizeof(marked),
					    0);
	}
}

/* At the egress of a limited device, or of any while there are marks. */
static __always_inline void nn_meter_leaves(struct __sk_buff *skb)
{
	struct nn_link_key key = {.ifindex = skb->ifindex};
	struct bpf_sock *sk = skb->sk;
	struct nn_node *n;
	__u32 *node, header;
	__u64 bytes;

	if (sk) {
		struct nn_socket *s = bpf_sk_storage_get(&sockets, sk, 0, 0);

		/* what a tunnel packs has the socket still, and the mark in it
		 */
		if (s && s->out_ifindex == skb->ifindex) {
			if (s->dscp)
				nn_mark(skb, s->dscp - 1);
			/* it is charged as all that its path is */
			if (s->link.node)
				return;
		}
	}
	key.netns = nn_packet_netns(skb);
	node = bpf_map_lookup_elem(&links, &key);
	n = node ? bpf_map_lookup_elem(&nodes, node) : NULL;
	if (!n || !(n->flags & NN_NODE_LIVE))
		return;
	bytes = skb->len;
	header = nn_packet_header(skb);
	if (bytes > header)
		bytes -= header;
	if (skb->gso_segs > 1)
		bytes += (__u64)(skb->gso_segs - 1) * NN_TCP_HEADERS;
	bytes = nn_line_bytes(n, bytes, nn_counted(skb->gso_segs));
	nn_meter_charge(n, *node, NN_UP, bytes);
	nn_meter_charge(n, *node, NN_TOTAL, bytes);
}

#endif
