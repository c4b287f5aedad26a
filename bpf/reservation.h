/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A reservation, pure: a slice of the clock's time in each period, as Nemesis
 * has it (Voigt, Ahlgren: period, slice, extra), where a guarantee
 * is the same bytes spread evenly. What a slice is worth is there as the period
 * begins; it is sent at the clock's rate until it is used up, and what is not
 * used of it is lost. A chunk that is begun is finished: its excess is taken
 * off later slices. Without extra its owner gets no more than that.
 *
 * Several that begin together take turns, chunk by chunk, as long as each has
 * its slice before its period ends: so a slow line behind the clock has no more
 * than a chunk of each to queue.
 *
 * Its state is a class's: finish = when the next chunk may leave, until = when
 * the period began, reserved_bytes = what is left of its slice, signed; weight
 * = 1: without extra.
 */
#ifndef NETNICE_RESERVATION_H
#define NETNICE_RESERVATION_H

#include "clock.h"

/* What a slice is worth, of a reservation of so many bytes/s: to the byte up to
 * 18 GB/s, by thousands beyond. */
static __always_inline __u64 nn_slice_bytes(__u64 guarantee, __u64 period_ns)
{
	__u64 bytes = guarantee >> 34 ? guarantee / 1000 * period_ns / 1000000
				      : guarantee * period_ns / NN_NSEC_PER_SEC;

	return bytes ? bytes : 1;
}

/* Begin the period that now is in. After one that was not used at all a new one
 * begins with the first chunk. */
static __always_inline void nn_period_begin(struct nn_class *r, __u64 slice,
					    __u64 period_ns, __u64 now_ns)
{
	__u64 gone = now_ns - r->until, periods;
	__s64 left = r->reserved_bytes;

	if ((__s64)gone < (__s64)period_ns)
		return;
	periods = gone / period_ns;
	if (left >= 0 && periods > 1) {
		r->until = now_ns;
		r->reserved_bytes = slice;
		return;
	}
	r->until += periods * period_ns;
	if (left >= 0 || periods > (__u64)-left / slice + 1)
		left = slice;
	else
		left += periods * slice; /* a slice at most */
	r->reserved_bytes = left;
}

/* Charge a chunk to the slice of the period that now is in, or of later ones.
 * The next one of the slice leaves after the chunks of all reservations so far,
 * but in time for the rest of the slice. (Stack is short here: finish stands
 * for what a variable could.) */
static __always_inline void nn_period_charge(struct nn_clock *c,
					     struct nn_class *r,
					     __u64 guarantee, __u64 period_ns,
					     __u64 cost, __u64 rate,
					     __u64 now_ns)
{
	__u64 slice = nn_slice_bytes(guarantee, period_ns);
	__s64 left;

	nn_period_begin(r, slice, period_ns, now_ns);
	left = r->reserved_bytes - cost;
	r->reserved_bytes = left;
	r->bytes += cost;
	r->finish = r->until + period_ns;
	if (left <= 0)
		r->finish += period_ns * ((__u64)-left / slice);
	cost = cost * NN_NSEC_PER_SEC / rate;
	if (c->slices_ns < now_ns)
		c->slices_ns = now_ns;
	if (c->slices_ns >
	    now_ns + period_ns) /* more is promised than there is */
		c->slices_ns = now_ns + period_ns;
	c->slices_ns += cost;
	if (left <= 0)
		return;
	if (left >> 34) /* its time could not be computed */
		r->finish = 0;
	else
		r->finish -= left * NN_NSEC_PER_SEC / rate;
	if (r->finish > c->slices_ns)
		r->finish = c->slices_ns;
	if (r->finish < now_ns + cost)
		r->finish = now_ns + cost;
}

#endif
