/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What leaves a queue is charged to the clocks that pace TCP, in a class of its
 * own. The user side keeps the queue's rate near what that class is due.
 */
#ifndef NETNICE_QUEUED_H
#define NETNICE_QUEUED_H

#include "charge.h"

/* So far ahead of the clock what leaves the queue may be. The user side keeps
 * it far below that by the queue's rate; without one the rest is dropped, so
 * that TCP gets its share and the sum stays at the limit. */
#define NN_QUEUED_AHEAD_NS 500000000ULL
/* Or so many packets, which of a low limit are more. */
#define NN_QUEUED_AHEAD_PACKETS 8

/* May packets of that size leave, given a limit? paid_ns: when what left before
 * is paid for. */
static __always_inline bool nn_queued_leaves(__u64 *paid_ns, __u64 now_ns,
					     __u64 packet, __u64 rate)
{
	__u64 ahead_ns = NN_QUEUED_AHEAD_NS, packets_ns = 0;

	if (rate)
		packets_ns = NN_QUEUED_AHEAD_PACKETS * packet *
			     NN_NSEC_PER_SEC / rate;
	if (packets_ns > ahead_ns)
		ahead_ns = packets_ns;
	if (*paid_ns <= now_ns + ahead_ns)
		return true;
	/* no clock is charged for it: it gets nearer as others send */
	*paid_ns -= (*paid_ns - now_ns) >> 6;
	return false;
}

/* Take bytes off a node's clock of a direction, which wait for nothing; 1: once
 * more, as nn_hop_turn. */
static __always_inline int nn_clock_pass(__u32 node, __u32 direction,
					 __u64 rate, __u64 bytes, __u32 calls,
					 bool sent)
{
	struct nn_clock_key key = {.node = node, .direction = direction};
	__u64 now_ns = bpf_ktime_get_ns();
	struct nn_clock *c;
	int again;

	c = bpf_map_lookup_elem(&clocks, &key);
	if (!c || !rate)
		return 0;
	bpf_spin_lock(&c->lock);
	again = nn_clock_advance(c, rate, NN_SOCKET_BURST_NS, now_ns) &&
		calls < NN_ADVANCE_CALLS;
	if (!again) {
		/* Else it takes more than there is: the others have a
		 * twentieth. */
		if (!sent || nn_guarantee_good(c, now_ns))
			nn_clock_take(c, bytes, rate, now_ns);
		c->bytes += bytes;
		if (sent)
			c->sent_bytes += bytes;
	}
	bpf_spin_unlock(&c->lock);
	return again;
}

/* Charge a node's clock of a direction, if it has a limit there. */
static __always_inline void nn_queued_charge(struct nn_transmit *x,
					     struct nn_node *n, __u32 node,
					     __u32 direction)
{
	__u64 rate = nn_ceiling(n, node, direction);

	if (!rate)
		return;
	if (nn_line_adds(n))
		nn_line_on(x, node);
	nn_hop_charge(x, node, direction, rate, nn_burst(n, direction));
	nn_line_off(x);
}

#endif
