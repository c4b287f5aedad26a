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
