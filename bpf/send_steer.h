/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file steers a non-TCP packet that is sent. The packet goes from the
 * egress of its device through the HTB class of each node on its socket's path,
 * innermost first, and back to that egress. A mark then lets it pass. It stays
 * charged to its socket's buffer all the while, so that the sender waits when
 * that buffer is full. When it leaves a class, that node's clock is charged.
 */
#ifndef NETNICE_SEND_STEER_H
#define NETNICE_SEND_STEER_H

#include "datagram.h"
#include "frame.h"
#include "inside.h"
#include "onward.h"
#include "queued.h"
#include "send_from.h"
#include "send_gate.h"

#define NN_SEND_USED_NS 100000000ULL

/* The lower of the ceilings of a node on what is sent, 0 = none. Not static,
 * for its stack would come on top of the caller's. */
__noinline __u64 nn_outbound_rate(__u32 node, __u32 generation)
{
	struct nn_node *n = nn_node_get(node, generation);

	if (!n)
		return 0;
	return nn_lower(nn_ceiling(n, node, NN_UP),
			nn_ceiling(n, node, NN_TOTAL));
}

/* Has a ceiling of the node on what is sent lapsed? Not static, as above. */
__noinline int nn_outbound_lapsed(__u32 node, __u32 generation)
{
	struct nn_node *n = nn_node_get(node, generation);

	if (!n || !(n->flags & NN_NODE_LAPSES))
		return 0;
	return nn_lapsed_in(n, NN_UP, nn_clock_bytes(node, NN_UP)) ||
	       nn_lapsed_in(n, NN_TOTAL, nn_clock_bytes(node, NN_TOTAL));
}

/* Then the queue has the rate of before, until the user side sets another. */
static __always_inline bool nn_outbound_any_lapsed(const struct nn_socket *s)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!s->path[i].node)
			break;
		if (nn_outbound_lapsed(s->path[i].node, s->path[i].generation))
			return true;
	}
	return false;
}

/* The next node on the path that limits what is sent, from a hop on. */
static __always_inline __u32 nn_outbound_next(const struct nn_socket *s,
					      __u32 from, __u32 *at,
					      __u64 *rate)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!s->path[i].node)
			break;
		if (i < from)
			continue;
		*rate = nn_outbound_rate(s->path[i].node,
					 s->path[i].generation);
		if (!*rate)
			continue;
		*at = i;
		return s->path[i].node;
	}
	return 0;
}

/* A packet enters its owner's lane at the node. The function returns the minor
 * number of the lane's class, or 0 for that of the first lane. It is not
 * static, as above. */
__noinline __u32 nn_lane_join(struct nn_outflow *f, const struct nn_socket *s,
			      __u32 hop, __u64 bytes, __u64 now_ns)
{
	struct nn_send_hop at = {};
	struct nn_outflow_key key;
	struct nn_lane *l;
	__u32 *minor, lane;

	if (!f || !s)
		return 0;
	nn_send_hop(s, hop, &at);
	lane = nn_lane_of(f, at.lane, now_ns, true);
	key = f->key;
	l = nn_lane(f, lane);
	if (!lane)
		l->child = at.lane; /* the last child stands for all */
	l->class = at.child;
	if (nn_lane_empty(l, now_ns))
		l->left_bytes = l->came_bytes;
	l->used_ns = now_ns;
	__sync_fetch_and_add(&l->came_bytes, bytes);
	__sync_fetch_and_add(&f->came_bytes, bytes);
	if (bytes > f->largest_bytes)
		f->largest_bytes = bytes;
	minor = bpf_map_lookup_elem(&lanes, &key);
	return lane && minor ? *minor + lane : 0;
}

/* Not at each packet: others read beside it. */
static __always_inline void nn_send_used(struct nn_send_place *q, __u64 now_ns)
{
	if (now_ns > q->used_ns + NN_SEND_USED_NS)
		q->used_ns = now_ns;
}

/* nn_kept_word is what a packet carries in skb->cb through the queues. The
 * kernel leaves that alone meanwhile, and a departure time of SO_TXTIME as
 * well. */
enum nn_kept_word {
	/* A program or the firewall has set the priority for the device's own
	 * queue, and the pair clears it. */
	NN_KEPT_PRIORITY,
	/* The class that it waits in: another may send by its socket
	 * meanwhile. */
	NN_KEPT_NODE,
	NN_KEPT_MINOR,
};

static __always_inline int nn_send_enqueue(struct __sk_buff *skb,
					   struct nn_send_place *q, __u32 minor,
					   __u32 node, __u32 slot, __u64 now_ns)
{
	nn_send_used(q, now_ns);
	skb->cb[NN_KEPT_NODE] = node;
	skb->cb[NN_KEPT_MINOR] = minor;
	skb->priority =
		NN_SHAPE_HANDLE | (minor ? minor : NN_LANE_FIRST + node);
	skb->tc_index = NN_SEND_MARK | slot;
	return bpf_redirect(q->queue_ifindex, 0);
}

/* A control message may pass beside the queue if its part of the limit is not
 * used up. */
static __always_inline bool nn_control_passes(struct nn_outflow *f, __u64 rate,
					      __u64 bytes, __u64 now_ns)
{
	__u64 part = rate / NN_CONTROL_PART, at = f->aside_ns;

	if (part < NN_CONTROL_LEAST)
		part = NN_CONTROL_LEAST;
	if (at > now_ns)
		return false;
	if (at + NN_CONTROL_BURST_NS < now_ns)
		at = now_ns - NN_CONTROL_BURST_NS;
	f->aside_ns = at + bytes * NN_NSEC_PER_SEC / part;
	return true;
}

/* Charge the whole path for a packet that passes beside the queue. */
static __always_inline void nn_send_aside(struct nn_socket *s, __u32 netns,
					  struct nn_transmit *x)
{
	__u64 bytes = x->wire_bytes;

	if (s->prepaid_bytes < bytes)
		nn_path_walk(s, x, NN_CHARGE);
	s->prepaid_bytes = 0;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_outflow *f;

		if (!s->path[i].node)
			break;
		f = nn_outflow(netns, s->path[i].node);
		if (!f)
			continue;
		__sync_fetch_and_add(&f->aside_bytes, bytes);
		__sync_fetch_and_add(&f->bytes, bytes);
	}
}

/* Neighbour discovery of IPv4, and what tells hosts of errors and groups. */
static __always_inline bool nn_send_control(struct __sk_buff *skb)
{
	__u32 at = skb->protocol == bpf_htons(ETH_P_IPV6) ? 6 : 9;
	__u8 protocol = 0;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) &&
	    skb->protocol != bpf_htons(ETH_P_IP))
		return skb->protocol == bpf_htons(ETH_P_ARP);
	return !bpf_skb_load_bytes_relative(skb, at, &protocol,
					    sizeof(protocol),
					    BPF_HDR_START_NET) &&
	       nn_is_control(protocol);
}

/* The state of a packet's socket, if that is a non-TCP socket. */
static __always_inline struct nn_socket *nn_send_socket(struct __sk_buff *skb,
							struct bpf_sock **of)
{
	struct bpf_sock *sk = skb->sk;

	if (!sk)
		return NULL;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol == IPPROTO_TCP)
		return NULL;
	*of = sk;
	return bpf_sk_storage_get(&sockets, sk, 0, 0);
}

/* Does something of a socket wait in the queue? Not static, for its stack would
 * come on top of the caller's. */
__noinline int nn_send_waits(struct nn_socket *s, __u64 now_ns)
{
	if (!s)
		return 0;
	if ((__s32)s->queued_packets > 0 &&
	    now_ns < s->queued_ns + NN_LANE_EMPTY_NS)
		return 1;
	s->queued_packets = 0; /* the rest was lost in the queue */
	s->queued_bytes = 0;
	return 0;
}

/* Whether a packet may pass beside the queue: its program keeps to its share,
 * and nothing of its socket waits there. */
static __always_inline bool nn_send_passes(struct nn_socket *s,
					   struct nn_transmit *x)
{
	if (nn_send_waits(s, x->now_ns))
		return false;
	nn_path_walk(s, x, NN_ASK);
	return nn_datagram_due(x) <= x->now_ns + NN_QUEUE_NEEDED_NS;
}

/* A packet of a socket comes into the queue. Not static, for its stack would
 * come on top of the caller's. */
__noinline int nn_send_queued(struct nn_socket *s, __u64 bytes, __u64 now_ns)
{
	if (!s)
		return 0;
	s->queued_ns = now_ns;
	__sync_fetch_and_add(&s->queued_packets, 1);
	__sync_fetch_and_add(&s->queued_bytes, (__u32)bytes);
	return 0;
}

/* No class takes it, or none yet. The egress hook has left the charge to the
 * queue, or has charged it, if it saw none. */
static __always_inline int nn_send_classless(struct nn_socket *s,
					     struct nn_transmit *x)
{
	if (s->prepaid_bytes >= x->wire_bytes) {
		s->prepaid_bytes -= x->wire_bytes;
		return TC_ACT_UNSPEC;
	}
	s->prepaid_bytes = 0;
	nn_path_walk(s, x, NN_ASK);
	if (nn_datagram_due(x) > x->now_ns + NN_DATAGRAM_AHEAD_NS) {
		nn_dropped_count(s);
		return TC_ACT_SHOT;
	}
	nn_path_walk(s, x, NN_CHARGE);
	return TC_ACT_UNSPEC;
}

/* A packet of a socket that some node holds for. */
static __always_inline int nn_send_leaves(struct __sk_buff *skb,
					  struct bpf_sock *sk,
					  struct nn_socket *s)
{
	struct nn_device_key key = {.ifindex = skb->ifindex};
	__u32 node, hop = 0;
	struct nn_send_place *q;
	struct nn_policy *policy;
	struct nn_outflow *f;
	struct nn_device *d;
	struct nn_transmit x = {.empty = 1,
				.apart = NN_APART_DATAGRAMS,
				.segments =
					nn_counted(nn_packet_segments(skb))};
	__u64 bytes, rate, now_ns;

	/* of a VLAN on this device, which has a device of its own */
	if ((skb->tc_index & NN_MARK_MASK) == NN_SEND_MARK || skb->vlan_present)
		return TC_ACT_UNSPEC;
	/* a tunnel's, from which the mark is lost */
	if (!nn_comes_from_hook(skb, sk, s))
		return TC_ACT_UNSPEC;
	node = nn_outbound_next(s, 0, &hop, &rate);
	if (!node)
		return TC_ACT_UNSPEC;
	key.netns = nn_packet_netns(skb);
	q = bpf_map_lookup_elem(&sender, &key.netns);
	d = bpf_map_lookup_elem(&send_devices, &key);
	f = nn_outflow(key.netns, node);
	policy = nn_policy();
	bytes = nn_datagram_bytes(skb, nn_packet_header(skb));
	now_ns = bpf_ktime_get_ns();
	x.now_ns = now_ns;
	x.wire_bytes = bytes;
	if (nn_outbound_any_lapsed(s))
		return nn_send_classless(s, &x);
	if (!q || !d || !f || !policy) {
		nn_send_fault(d ? NN_SEND_FAULT_CLASS : NN_SEND_FAULT_DEVICE);
		return nn_send_classless(s, &x);
	}
	/* the egress hook of the cgroup need not look at the next */
	s->queue_ifindex = key.ifindex;
	s->queue_epoch = policy->queues;
	if ((nn_send_control(skb) &&
	     nn_control_passes(f, rate, bytes, now_ns)) ||
	    (!nn_gate_at(key.netns, node, now_ns) && nn_send_passes(s, &x))) {
		nn_send_aside(s, key.netns, &x);
		return TC_ACT_UNSPEC;
	}
	if (d->flags & NN_DEVICE_BARE && !nn_header_add(skb)) {
		nn_send_fault(NN_SEND_FAULT_HEADER);
		return nn_send_classless(s, &x);
	}
	nn_send_queued(s, bytes, now_ns);
	skb->cb[NN_KEPT_PRIORITY] = skb->priority;
	return nn_send_enqueue(skb, q, nn_lane_join(f, s, hop, bytes, now_ns),
			       node, d->slot, now_ns);
}

/* This runs at the egress of each of the machine's devices but lo. Packets that
 * no limit concerns end here, by one look and before any variable of the rest
 * is set: their socket has no state, or an empty path. */
static __always_inline int nn_send_leaving(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct nn_socket *s;

	if (!sk || nn_sent_free(skb))
		return TC_ACT_UNSPEC;
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!s || !s->path[0].node)
		return TC_ACT_UNSPEC;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol == IPPROTO_TCP)
		return TC_ACT_UNSPEC;
	return nn_send_leaves(skb, sk, s);
}

/* A packet has waited for a node that is not on its socket's path any more:
 * somebody else has sent by the socket. It is charged to who its lane is of.
 * Not static, for its stack would come on top of the caller's. */
__noinline int nn_send_hop_kept(struct nn_send_hop *at, __u32 netns, __u32 node,
				__u32 minor)
{
	struct nn_outflow *f = nn_outflow(netns, node);
	struct nn_outflow_key key;
	struct nn_lane *l;
	__u32 *first;

	if (!at || !f)
		return 0;
	key = f->key;
	first = bpf_map_lookup_elem(&lanes, &key);
	l = nn_lane(f, first && minor > *first ? minor - *first : 0);
	at->node = node;
	at->child = l->class;
	at->lane = l->child;
	at->weight = NN_WEIGHT_DEFAULT;
	at->guarantee = 0;
	return 0;
}

/* A packet leaves the class of a node, which has that hop on its socket's path:
 * charge the node's clocks; false if it is too far ahead of them. */
static __always_inline bool nn_send_left(struct nn_socket *s, __u32 netns,
					 __u64 bytes, __u32 segments,
					 bool prepaid, __u32 node, __u32 hop,
					 __u32 minor)
{
	struct nn_transmit x = {
		.now_ns = bpf_ktime_get_ns(),
		.wire_bytes = bytes,
		.limit = NN_UNLIMITED,
		.mode = NN_CHARGE,
		.empty = 1,
		.apart = NN_APART_DATAGRAMS,
	};
	struct nn_send_hop at =
		{}; /* Linux 5.15 has it written before a call */
	struct nn_outflow *f;
	struct nn_node *n;
	struct nn_lane *l;

	x.segments = nn_counted(segments);
	nn_send_hop(s, hop, &at);
	if (at.node != node)
		nn_send_hop_kept(&at, netns, node, minor);
	x.child = at.child;
	x.weight = at.weight;
	x.guarantee = at.guarantee;
	x.guaranteed = at.guaranteed;
	n = bpf_map_lookup_elem(&nodes, &at.node);
	f = at.node ? nn_outflow(netns, at.node) : NULL;
	if (!n || !f)
		return true; /* the limit has gone */
	l = nn_lane(f, nn_lane_of(f, at.lane, x.now_ns, false));
	l->used_ns = x.now_ns;
	__sync_fetch_and_add(&l->left_bytes, bytes);
	if (!nn_queued_leaves(&l->paid_ns, x.now_ns,
			      bytes / (segments ? segments : 1),
			      nn_outbound_rate(at.node, n->generation))) {
		__sync_fetch_and_add(&f->dropped, 1);
		return false;
	}
	__sync_fetch_and_add(&f->link_bytes, bytes + ETH_HLEN * segments);
	__sync_fetch_and_add(&f->packets, segments);
	__sync_fetch_and_add(&f->bytes, bytes);
	if (prepaid)
		return true;
	nn_queued_charge(&x, n, at.node, NN_UP);
	nn_queued_charge(&x, n, at.node, NN_TOTAL);
	l->paid_ns = x.next_ns;
	return true;
}

static __always_inline void nn_send_unqueued(struct nn_socket *s, __u64 bytes)
{
	__sync_fetch_and_add(&s->queued_packets, -1);
	__sync_fetch_and_add(&s->queued_bytes, -(__u32)bytes);
}

/* At the other end of the pair: on to the next node's class, or out. */
static __always_inline int nn_send_released(struct __sk_buff *skb)
{
	__u32 mark = skb->tc_index, hop, netns;
	__u32 slot = mark & (NN_MARK_DEVICES - 1), node;
	struct nn_send_place *q;
	struct nn_send_slot *out;
	struct nn_outflow *f;
	struct nn_socket *s;
	struct bpf_sock *sk;
	__u64 bytes, rate, now_ns = bpf_ktime_get_ns();
	__u32 gate, round;
	bool prepaid;

	/* not netnice's: no other packet belongs on this device */
	if ((mark & NN_MARK_MASK) != NN_SEND_MARK)
		return TC_ACT_SHOT;
	netns = nn_packet_netns(skb);
	out = bpf_map_lookup_elem(&send_slots, &slot);
	if (!out || !out->ifindex || out->netns != netns)
		return TC_ACT_SHOT; /* its device has gone */
	s = nn_send_socket(skb, &sk);
	if (!s) {
		nn_send_fault(NN_SEND_FAULT_SOCKET);
		return bpf_redirect(out->ifindex, 0);
	}
	bytes = nn_datagram_bytes(skb, ETH_HLEN);
	prepaid = s->prepaid_bytes >= bytes;
	s->queued_ns = now_ns;
	node = skb->cb[NN_KEPT_NODE];
	hop = nn_path_hop(s->path, node);
	q = bpf_map_lookup_elem(&sender, &netns);
	if (q)
		nn_send_used(q, now_ns);
	gate = nn_gate_at(netns, node, now_ns);
	if (gate == NN_GATE_SHUT && q) {
		round = nn_gate_round(s, netns, node, hop, now_ns);
		if (round)
			return nn_send_enqueue(skb, q, round, node, slot,
					       now_ns);
	}
	if (!nn_send_left(s, netns, bytes, nn_packet_segments(skb), prepaid,
			  node, hop, skb->cb[NN_KEPT_MINOR])) {
		nn_send_unqueued(s, bytes);
		return TC_ACT_SHOT;
	}
	if (gate)
		nn_gate_passed(netns, node);
	node = nn_outbound_next(s, nn_onward(s->path, node, hop), &hop, &rate);
	f = node ? nn_outflow(netns, node) : NULL;
	if (f && q) {
		return nn_send_enqueue(skb, q,
				       nn_lane_join(f, s, hop, bytes, now_ns),
				       node, slot, now_ns);
	}
	nn_send_unqueued(s, bytes);
	if (prepaid)
		s->prepaid_bytes -= bytes;
	skb->priority = skb->cb[NN_KEPT_PRIORITY];
	return bpf_redirect(out->ifindex, 0);
}

#endif
