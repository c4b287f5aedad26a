/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file steers a received packet that a limit concerns. The packet goes
 * from its device through the HTB class of each node on its path, innermost
 * first, and back to its device. A mark then lets it pass. The pair of devices
 * is netnice's own: HTB is on one end, and packets that leave it appear at the
 * other. The pair is in one network namespace, home. Packets of other
 * namespaces go there and back by a link.
 */
#ifndef NETNICE_SHAPE_STEER_H
#define NETNICE_SHAPE_STEER_H

#include "onward.h"
#include "shape_datagram.h"
#include "shape_early.h"
#include "shape_owner.h"
#include "shape_lapse.h"
#include "shape_other.h"
#include "shape_ported.h"

#define PACKET_OTHERHOST 3
#define PACKET_LOOPBACK	 5

/* The next node on the path that limits what comes in, from a hop on. */
static __always_inline __u32 nn_inbound_next(const struct nn_whose *path,
					     __u32 from, __u32 *at)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!path->hops[i].node)
			break;
		if (i < from || !nn_inbound_rate(&path->hops[i]) ||
		    nn_inbound_lapsed(path->hops[i].node,
				      path->hops[i].generation))
			continue;
		*at = i;
		return path->hops[i].node;
	}
	return 0;
}

static __always_inline int nn_enqueue(struct __sk_buff *skb,
				      const struct nn_shaper *q,
				      const struct nn_inflow *f, __u32 node,
				      __u32 slot)
{
	nn_queued_note(skb, node, f);
	skb->priority = NN_SHAPE_HANDLE | node;
	skb->tc_index = NN_MARK | slot;
	return bpf_redirect(q->queue_ifindex, 0);
}

/* nn_send_home redirects a packet from another namespace. The link clears the
 * priority. A VLAN tag, of which the packet has none so far, carries the node.
 * No second socket lookup is needed; a lookup could not be told the packet's
 * device. */
static __always_inline int nn_send_home(struct __sk_buff *skb,
					const struct nn_device *d)
{
	skb->tc_index = NN_MARK | d->slot;
	return bpf_redirect_peer(d->link_ifindex, 0);
}

/* nn_send_back redirects a packet to the device from which it came. */
static __always_inline int nn_send_back(const struct nn_slot *slot)
{
	if (slot->home_ifindex)
		return bpf_redirect_peer(slot->home_ifindex, 0);
	return bpf_redirect(slot->ifindex, BPF_F_INGRESS);
}

/* Charge what the queue does not see. */
static __always_inline void nn_aside(const struct nn_whose *path, __u64 bytes)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_inflow *f;

		if (!path->hops[i].node)
			break;
		f = nn_inflow(path->hops[i].node);
		if (f && nn_inbound_rate(&path->hops[i])) {
			__sync_fetch_and_add(&f->aside_bytes, bytes);
			__sync_fetch_and_add(&f->bytes, bytes);
			nn_total_charge(&path->hops[i], f, bytes, 1, true);
		}
	}
}

/* nn_fits tells whether a fragmented datagram fits in the queue; this packet is
 * its first part. A full queue drops parts of many datagrams, and the remaining
 * parts are useless. The function drops the excess of datagrams while more
 * arrives than the limit lets through and more than half of the queue is in
 * use. It also counts the arriving bytes. It is not static, because it needs a
 * stack of its own. */
__noinline int nn_fits(struct nn_inflow *f, __u32 node, __u64 bytes,
		       __u32 first)
{
	__u32 span = bpf_ktime_get_ns() / NN_SPAN_NS;
	__u64 offered = 0, left = 0, rate, room, *due;
	struct nn_node *n;

	if (!f)
		return 1;
	__sync_fetch_and_add(&nn_span_count(f, span)->offered, bytes);
	if (!first)
		return 1;
	for (__u32 i = 1; i < NN_RECENT; i++) {
		const struct nn_span_count *c =
			&f->recent[(span - i) & (NN_RECENT - 1)];

		if (c->span != span - i)
			continue;
		offered += c->offered;
		left += c->bytes;
	}
	n = bpf_map_lookup_elem(&nodes, &node);
	if (!n)
		return 1;
	rate = nn_ceiling_down(n, node);
	due = bpf_map_lookup_elem(&queue_rates, &node);
	if (due)
		rate = nn_lower(rate, *due);
	room = rate / NN_ROOM_PART;
	if (room < NN_ROOM_LEAST)
		room = NN_ROOM_LEAST;
	if (offered <= left + room / 2)
		return 1;
	/* the bytes that could have left, though they did not */
	rate = (NN_RECENT - 1) * rate / (NN_NSEC_PER_SEC / NN_SPAN_NS);
	if (left < rate)
		left = rate;
	return (bpf_get_prandom_u32() & 1023) * offered < left << 10;
}

/* The other parts of a datagram are dropped, too. */
static __always_inline void nn_refuse(struct __sk_buff *skb,
				      const struct nn_packet *p,
				      const struct nn_slot *slot,
				      struct nn_whose *path,
				      struct nn_inflow *f)
{
	__sync_fetch_and_add(&f->refused, 1);
	if (!p->more)
		return;
	path->hops[0].node |= NN_KEPT_DROPPED;
	nn_path_store(skb, p, slot, path);
}

/* nn_let_in tells whether a packet gets into the queue of that hop. The
 * program's clock refuses whole UDP datagrams, and the queue's rule (nn_fits)
 * refuses all others: both in a row would refuse too much. The clock refuses
 * what completes parts that are here already, too. If dropped is set,
 * its datagram's first part was refused, so the packet is not charged. */
static __always_inline bool nn_let_in(struct __sk_buff *skb,
				      struct nn_packet *p,
				      const struct nn_slot *slot,
				      struct nn_whose *path,
				      struct nn_inflow *f, __u32 node,
				      __u32 hop, __u64 bytes, bool dropped)
{
	bool udp = p->protocol == IPPROTO_UDP ||
		   p->protocol == NN_IPPROTO_UDPLITE ||
		   skb->cb[NN_QUEUED_EARLY];

	if (!nn_fits(f, node, bytes, p->more && !p->fragment_offset && !udp) ||
	    (!dropped && udp &&
	     !nn_datagram_fits(path, hop, bytes, !p->fragment_offset))) {
		nn_refuse(skb, p, slot, path, f);
		return false;
	}
	if (dropped)
		__sync_fetch_and_add(&f->refused, 1);
	return !dropped;
}

/* A packet that a limit may concern. */
static __always_inline int nn_shape_arrives(struct __sk_buff *skb,
					    struct nn_shaper *q)
{
	struct nn_packet p = {};
	struct nn_whose path = {};
	struct nn_device_key key = {};
	struct nn_device *d;
	struct nn_inflow *f;
	__u32 node, hop = 0, segments;
	bool dropped, lapsed;
	__u64 bytes;

	if (!nn_parse(skb, &p)) {
		/* no sender needs so many headers, and nobody knows for whom
		 * it is */
		if (p.chained)
			return TC_ACT_SHOT;
		if (nn_is_control(p.protocol))
			nn_unknown_came(skb, &p, NN_UNKNOWN_CAME_KERNEL);
		if (!nn_unusual_path(skb, &p, NULL, &path))
			return nn_early_note(skb, &p);
	} else if (!nn_packet_path(skb, &p, NULL, &path)) {
		return nn_early_note(skb, &p);
	}
	dropped = path.hops[0].node & NN_KEPT_DROPPED;
	path.hops[0].node &= ~NN_KEPT_DROPPED;
	node = nn_inbound_next(&path, 0, &hop);
	lapsed = nn_inbound_any_lapsed(&path);
	if (!node && !lapsed) /* the socket may be one that was forgotten: see
			       * nn_path_of */
		return dropped ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	key.netns = nn_packet_netns(skb);
	key.ifindex = skb->ifindex;
	d = bpf_map_lookup_elem(&devices, &key);
	f = nn_inflow(node);
	if (node && (!q || !d || !f)) {
		nn_shape_fault(d ? NN_SHAPE_FAULT_CLASS
				 : NN_SHAPE_FAULT_DEVICE);
		return TC_ACT_UNSPEC;
	}
	bytes = nn_packet_bytes(skb, &p,
				d && d->flags & NN_DEVICE_BARE ? 0 : ETH_HLEN,
				&segments);
	skb->cb[NN_QUEUED_EARLY] = nn_early_bytes(skb, &p);
	bytes += skb->cb[NN_QUEUED_EARLY];
	if (nn_packet_empty(&p, bytes)) {
		nn_aside(&path, bytes);
		return TC_ACT_UNSPEC;
	}
	if (lapsed && !dropped && !nn_lapsed_all_pass(&path, bytes, segments))
		return TC_ACT_SHOT;
	if (!node || !f || !d || !q)
		return dropped ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	if (!nn_let_in(skb, &p, NULL, &path, f, node, hop, bytes, dropped))
		return TC_ACT_SHOT;
	if ((d->flags & NN_DEVICE_BARE && !nn_header_add(skb)) ||
	    (d->link_ifindex &&
	     bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), node))) {
		nn_shape_fault(NN_SHAPE_FAULT_HEADER);
		return TC_ACT_UNSPEC;
	}
	nn_joins_queue(f, bytes);
	if (d->link_ifindex)
		return nn_send_home(skb, d);
	return nn_enqueue(skb, q, f, node, d->slot);
}

/* At the ingress of each of the machine's devices but lo: its packets are sent
 * with a route already, which they would lose on the way. Others' packets end
 * here, before any variable of the rest is set. */
static __always_inline int nn_shape_arrived(struct __sk_buff *skb)
{
	struct nn_shaper *q;

	if ((skb->tc_index & NN_MARK_MASK) == NN_MARK) {
		skb->tc_index = 0;
		return TC_ACT_UNSPEC;
	}
	/* packets of a VLAN on this device, or for another link address, such
	 * as that of a macvlan, have a device of their own */
	if (skb->vlan_present || skb->pkt_type == PACKET_OTHERHOST)
		return TC_ACT_UNSPEC;
	/* a datagram to a group that the machine hears itself send */
	if (skb->pkt_type == PACKET_LOOPBACK)
		return TC_ACT_UNSPEC;
	q = nn_shaper();
	if (q && q->ports_known && nn_packet_free(skb))
		return TC_ACT_UNSPEC;
	return nn_shape_arrives(skb, q);
}

/* nn_marked_slot returns the slot that a packet of netnice carries. No other
 * packet belongs on these devices. */
static __always_inline struct nn_slot *nn_marked_slot(struct __sk_buff *skb)
{
	__u32 at = skb->tc_index & (NN_MARK_DEVICES - 1);
	struct nn_slot *slot;

	if ((skb->tc_index & NN_MARK_MASK) != NN_MARK)
		return NULL;
	slot = bpf_map_lookup_elem(&slots, &at);
	return slot && slot->ifindex ? slot : NULL;
}

/* nn_waited_for returns the node for which a released packet has waited. hop:
 * of it on the path of its socket, NN_PATH_MAX if it is not there any more. */
static __always_inline struct nn_hop nn_waited_for(const struct nn_whose *path,
						   __u32 node, __u32 hop)
{
	struct nn_hop at = {.node = node};
	struct nn_node *n;

	if (hop < NN_PATH_MAX)
		return nn_whose_hop(path, hop);
	n = bpf_map_lookup_elem(&nodes, &node);
	if (n)
		at.generation = n->generation;
	return at;
}

/* At the other end of the pair: on to the next node's class, or back. */
static __always_inline int nn_shape_released(struct __sk_buff *skb)
{
	struct nn_slot *slot = nn_marked_slot(skb);
	__u32 node = nn_queued_node(skb), hop, segments;
	struct nn_packet p = {};
	struct nn_whose path = {};
	struct nn_shaper *q;
	struct nn_inflow *f;
	struct nn_hop at;
	__u64 bytes;
	bool dropped;

	if (!slot)
		return TC_ACT_SHOT; /* its device has gone, or it is not ours */
	nn_queued_left(skb);
	q = nn_shaper();
	if (nn_parse(skb, &p))
		nn_packet_path(skb, &p, slot, &path);
	else
		nn_unusual_path(skb, &p, slot, &path);
	bytes = nn_packet_bytes(skb, &p, ETH_HLEN, &segments) +
		skb->cb[NN_QUEUED_EARLY];
	dropped = path.hops[0].node & NN_KEPT_DROPPED;
	path.hops[0].node &= ~NN_KEPT_DROPPED;
	hop = nn_path_hop(path.hops, node);
	at = nn_waited_for(&path, node, hop);
	if (!nn_left_queue(&at, bytes, segments))
		return TC_ACT_SHOT;
	node = nn_inbound_next(&path, nn_onward(path.hops, node, hop), &hop);
	f = node ? nn_inflow(node) : NULL;
	if (f && q) {
		/* a datagram may fit in one queue but not in the next */
		if (!nn_let_in(skb, &p, slot, &path, f, node, hop, bytes,
			       dropped))
			return TC_ACT_SHOT;
		nn_joins_queue(f, bytes);
		return nn_enqueue(skb, q, f, node,
				  skb->tc_index & (NN_MARK_DEVICES - 1));
	}
	return nn_send_back(slot);
}

/* At the end of a link at home: a packet of another namespace, whose node is
 * known already. */
static __always_inline int nn_shape_came_home(struct __sk_buff *skb)
{
	struct nn_slot *slot = nn_marked_slot(skb);
	__u32 node = skb->vlan_tci;
	struct nn_shaper *q = nn_shaper();
	struct nn_inflow *f;

	if (!slot || !q || slot->home_ifindex != skb->ifindex ||
	    !skb->vlan_present || bpf_skb_vlan_pop(skb))
		return TC_ACT_SHOT;
	f = nn_inflow(node);
	if (!f) /* lifted this moment */
		return nn_send_back(slot);
	return nn_enqueue(skb, q, f, node,
			  skb->tc_index & (NN_MARK_DEVICES - 1));
}

/* At its other end: back to the device. */
static __always_inline int nn_shape_delivered(struct __sk_buff *skb)
{
	struct nn_slot *slot = nn_marked_slot(skb);

	if (!slot)
		return TC_ACT_SHOT;
	return bpf_redirect(slot->ifindex, BPF_F_INGRESS);
}

#endif
