/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A transmit walks the path of its socket: each clock on it is asked when it
 * will be paid, and charged. Knows nodes and clocks, nothing of TCP.
 */
#ifndef NETNICE_CHARGE_H
#define NETNICE_CHARGE_H

#include "ceiling.h"
#include "hop.h"

#define NN_SOCKET_BURST_NS 10000000ULL
#define NN_PHASE_BYTES	   1500

/* Many sockets with the same low rate that begin at once would send at the same
 * moments for ever: after its first chunk each waits for a part of a segment's
 * time more, the next one by the golden section later, so that they are spread
 * evenly, however many they are. Two at once may get the same: no harm. */
#define NN_PHASE_STEP 0x9e3779b1U

__u32 phase;

static __always_inline __u64 nn_phase_ns(struct nn_socket *s, __u64 rate)
{
	__u64 span_ns = NN_PHASE_BYTES * NN_NSEC_PER_SEC / rate;

	if (span_ns > NN_NSEC_PER_SEC)
		span_ns = NN_NSEC_PER_SEC;
	s->flags |= NN_SOCK_PHASED;
	phase += NN_PHASE_STEP;
	return span_ns * (phase >> 16) >> 16;
}

/* Ask every clock on the socket's path when it will be paid, and charge it. Not
 * static, as above. */
__noinline int nn_path_walk(struct nn_socket *s, struct nn_transmit *x,
			    enum nn_walk mode)
{
	__u64 guarantee;

	if (!s || !x)
		return 0;
	x->next_ns = 0;
	x->before_ns = 0;
	x->less_held_ns = 0;
	x->reserved_ns = 0;
	x->unheld_ns = 0;
	x->crowd_ns = 0;
	x->young_ns = 0;
	x->newborn_ns = 0;
	x->share = NN_UNLIMITED;
	x->limit = NN_UNLIMITED;
	x->promised =
		s->limit_bytes_per_sec >> 42 ? 0 : s->limit_bytes_per_sec >> 10;
	x->child = s->child;
	x->weight = NN_WEIGHT_DEFAULT;
	x->guarantee = 0;
	x->chunks = 0;
	x->mode = mode;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		__u32 index = s->path[i].node;
		struct nn_node *n;

		if (!index)
			break;
		n = nn_node_get(index, s->path[i].generation);
		if (!n)
			continue;
		if (x->loopback && !(n->flags & NN_NODE_LOOPBACK))
			continue;
		if (n->kind == NN_NODE_LINK && nn_line_adds(n))
			nn_line_on(x, index);
		for (__u32 d = NN_UP; d <= NN_TOTAL; d += NN_TOTAL - NN_UP) {
			__u64 rate = nn_ceiling(n, index, d);

			if (!rate)
				continue;
			nn_hop_charge(x, index, d, rate, nn_burst(n, d));
			/* a chunk comes to the modem at once, and stands in its
			 * queue */
			if (n->kind == NN_NODE_LINK)
				x->chunks |= NN_CHUNKS_SMALL;
		}
		nn_line_off(x);
		guarantee = n->limits[NN_OWNER_ADMIN][NN_UP].min_bytes_per_sec;
		if (nn_part_of_program(n, guarantee))
			continue;
		x->child = nn_child_node(index, n->generation);
		x->weight = n->weight;
		if (n->weight <= NN_WEIGHT_LIGHT)
			x->chunks |= NN_CHUNKS_SMALL;
		if (guarantee) {
			x->guarantee = guarantee;
			x->guaranteed = index;
		}
	}
	if (s->rate_bytes_per_sec) {
		__u64 rate = s->rate_bytes_per_sec, at = s->rate_clock_ns;
		__u64 left;

		if (at + NN_SOCKET_BURST_NS < x->now_ns)
			at = x->now_ns - NN_SOCKET_BURST_NS;
		if (at > x->before_ns)
			x->before_ns = at;
		if (at > x->less_held_ns)
			x->less_held_ns = at;
		left = s->due_ns ? s->prepaid_bytes * NN_NSEC_PER_SEC / rate
				 : 0;
		left = left < at ? at - left : 0;
		if (left > x->unheld_ns)
			x->unheld_ns = left;
		at += x->wire_bytes * NN_NSEC_PER_SEC / rate;
		if (x->mode == NN_CHARGE || x->mode == NN_RESERVE) {
			if (!x->empty && !(s->flags & NN_SOCK_PHASED))
				at += nn_phase_ns(s, rate);
			s->rate_clock_ns = at;
		}
		if (at > x->next_ns)
			x->next_ns = at;
		if (rate < x->limit)
			x->limit = rate;
	}
	return 0;
}

/* Count the charged bytes as unknown traffic if the socket has no known
 * owner. */
static __always_inline void nn_unknown_sent(const struct nn_socket *s,
					    const struct nn_transmit *x,
					    __u64 bytes, __u32 segments)
{
	if (nn_socket_nobodys(s) && x->limit != NN_UNLIMITED)
		nn_unknown(NN_UNKNOWN_SENT_SOCKET, bytes, segments);
}

/* Does anything on the path hold still? */
static __always_inline bool nn_path_live(struct nn_socket *s)
{
	if (s->rate_bytes_per_sec || s->receive_bytes_per_sec)
		return true;
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		if (!s->path[i].node)
			break;
		if (nn_node_get(s->path[i].node, s->path[i].generation))
			return true;
	}
	return false;
}

/* Is the innermost node of its path still live? If its limit was lifted, the
 * path is old, and may belong to a process that has ended. */
static __always_inline bool nn_path_begins_live(struct nn_socket *s)
{
	return s->path[0].node &&
	       nn_node_get(s->path[0].node, s->path[0].generation);
}

static __always_inline void nn_held_count(struct nn_socket *s)
{
	for (__u32 i = 0; i < NN_PATH_MAX; i++) {
		struct nn_clock_key k = {.node = s->path[i].node};
		struct nn_clock *c;

		if (!k.node)
			break;
		c = bpf_map_lookup_elem(&clocks, &k);
		if (!c) {
			k.direction = NN_TOTAL;
			c = bpf_map_lookup_elem(&clocks, &k);
		}
		if (c)
			__sync_fetch_and_add(&c->held, 1);
	}
}

#endif
