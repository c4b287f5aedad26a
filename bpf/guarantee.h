/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file holds the pure arithmetic of a guarantee: a minimum rate at a
 * clock, whatever the other classes demand.
 *
 * A guarantee is a virtual clock of its own (GCRA) beside its owner's class. A
 * chunk leaves when the first of both is paid, and is charged to that one. The
 * owner therefore gets the guarantee and a fair part of the rest, with one
 * socket or with many. All classes pay for the guaranteed bytes: the clock's
 * own time is pushed forward, as for burst credit.
 */
#ifndef NETNICE_GUARANTEE_H
#define NETNICE_GUARANTEE_H

#include "reservation.h"

/* A chunk may leave this late without losing part of its guarantee, because of
 * TCP's timers. */
#define NN_GUARANTEE_CREDIT_NS 10000000ULL
/* Guarantees may push the clock's time this far ahead of now; beyond, all
 * classes share. */
#define NN_GUARANTEE_OWED_NS 200000000ULL

/* A guarantee has no weight: the field says whether it is a reservation whose
 * owner has nothing else. */
static __always_inline bool nn_slice_only(const struct nn_class *g)
{
	return g->weight;
}

static __always_inline void nn_slice_only_set(struct nn_class *g, bool only)
{
	g->weight = only;
}

/* What a clock can keep of a guarantee, bytes/s: a twentieth is for others. */
static __always_inline __u64 nn_guarantee_of(__u64 guarantee, __u64 rate)
{
	__u64 most = rate - rate / 20;

	return guarantee < most ? guarantee : most;
}

/* The rate that guarantees take of a clock is a mean over this time. The other
 * classes have to allow for it: else they would be ahead by as many times
 * more. */
#define NN_TAKEN_NS 200000000ULL

/* The rate that is left for the classes, bytes/s, a twentieth at least. */
static __always_inline __u64 nn_guarantee_left(struct nn_clock *c, __u64 rate,
					       __u64 now_ns)
{
	__u64 dt = (now_ns - c->taken_at_ns) >> 10;
	__u64 twice = 2 * NN_TAKEN_NS >> 10;

	if (!c->taken_bytes_per_sec || now_ns < c->taken_at_ns)
		return rate - nn_guarantee_of(c->taken_bytes_per_sec, rate);
	if (dt > twice)
		dt = twice;
	/* exponential, by the trapezoidal rule */
	c->taken_bytes_per_sec =
		c->taken_bytes_per_sec * (twice - dt) / (twice + dt);
	c->taken_at_ns = now_ns;
	return rate - nn_guarantee_of(c->taken_bytes_per_sec, rate);
}

/* Can the clock pay? Else more has been guaranteed than there is. */
static __always_inline bool nn_guarantee_good(const struct nn_clock *c,
					      __u64 now_ns)
{
	return (__s64)(c->time_ns - now_ns) <= (__s64)NN_GUARANTEE_OWED_NS;
}

/* When the first of both is paid; without extra when the reservation is. Of a
 * guarantee, finish is a time in ns. */
static __always_inline __u64 nn_guarantee_sooner(const struct nn_clock *c,
						 const struct nn_class *g,
						 __u64 paid_ns, __u64 now_ns)
{
	if (!g)
		return paid_ns;
	if (nn_slice_only(g))
		return nn_guarantee_good(c, now_ns) || g->finish > paid_ns
			       ? g->finish
			       : paid_ns;
	if (g->finish >= paid_ns || !nn_guarantee_good(c, now_ns))
		return paid_ns;
	return g->finish;
}

/* Take bytes off the clock before all classes, to which it is pushed forward;
 * nn_clock_advance has been called. */
static __always_inline void nn_clock_take(struct nn_clock *c, __u64 cost,
					  __u64 rate, __u64 now_ns)
{
	c->time_ns += nn_serve(nn_span(cost, 1), 1, rate, &c->rest);
	if (!c->taken_bytes_per_sec)
		c->taken_at_ns = now_ns;
	if (c->taken_bytes_per_sec < rate * 2)
		c->taken_bytes_per_sec +=
			cost * (NN_NSEC_PER_SEC / NN_TAKEN_NS);
}

/* Charge a chunk to the guarantee, if the class, which is paid at paid_ns,
 * would have it wait for longer, or if it is a reservation without extra;
 * nn_clock_advance has been called. period_ns is that of a reservation, else 0.
 */
static __always_inline bool nn_guarantee_charge(
	struct nn_clock *c, struct nn_class *g, __u64 guarantee,
	__u64 period_ns, __u64 cost, __u64 rate, __u64 paid_ns, __u64 now_ns)
{
	bool good = nn_guarantee_good(c, now_ns);
	__u64 at = g->finish;

	if (!nn_slice_only(g) && (paid_ns <= now_ns || at >= paid_ns || !good))
		return false;
	if (period_ns) {
		nn_period_charge(c, g, guarantee, period_ns, cost, rate,
				 now_ns);
	} else {
		if (at + NN_GUARANTEE_CREDIT_NS < now_ns)
			at = now_ns - NN_GUARANTEE_CREDIT_NS;
		g->finish = at + cost * NN_NSEC_PER_SEC / guarantee;
		g->bytes += cost;
	}
	if (good)
		nn_clock_take(c, cost, rate, now_ns);
	return good;
}

#endif
