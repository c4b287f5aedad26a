/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file holds the departure arithmetic. It is pure: the caller passes the
 * time in, and no helper is called.
 *
 * A clock is fluid weighted fair queueing (Demers, Keshav, Shenker 1989;
 * Parekh, Gallager 1993) computed per chunk: each class has a finish tag in
 * virtual time, and the virtual time advances by rate / (weight of the classes
 * that are backlogged). A wheel of slots by finish tag holds these classes. A
 * class's next chunk departs when virtual time reaches the class's tag.
 *
 * With one class this is the virtual clock (GCRA). With many, each class gets
 * its weight's part of the rate that the others leave, however many connections
 * it has. A newcomer waits for its own share only.
 *
 * Bytes that go out before they are paid (burst credit of a class, or a class
 * beyond the wheel's end) push the clock's own time forward, so the sum over
 * all classes is the rate whatever the classes do.
 */
#ifndef NETNICE_CLOCK_H
#define NETNICE_CLOCK_H

#include "types.h"

#define NN_SETTLE_NS 1000000000ULL
/* These bound nn_former_bytes. The least is one chunk of a high rate. */
#define NN_FORMER_LEAST_BYTES 65536
#define NN_FORMER_MOST_BYTES  (1U << 30)
/* The chunks of a low rate: two segments. */
#define NN_CHUNK_LEAST_BYTES 3000
/* This bound keeps bytes * NSEC_PER_SEC within 64 bits. */
#define NN_BYTES_MAX ((1ULL << 34) - 1)
/* The same in units of virtual time; a tag that is further ahead lies in the
 * past, before virtual time wrapped around. */
#define NN_UNITS_MAX (NN_BYTES_MAX << NN_VTIME_SHIFT)
/* This is the weight of 41,900 classes of default weight. A class beyond that
 * is charged to the clock's own time at once. */
#define NN_ACTIVE_WEIGHT_MAX (1U << 22)
#define NN_LEVEL_MASK	     7ULL
/* A clock that is further behind is brought up to now in several calls. */
#define NN_ADVANCE_STEPS 8
#define NN_ADVANCE_CALLS 7 /* after the first */

static __always_inline __u64 nn_span(__u64 bytes, __u32 weight)
{
	return (bytes << NN_VTIME_SHIFT) / weight;
}

/* How far a tag is ahead of virtual time, 0 if it is not. */
static __always_inline __u64 nn_ahead(__u64 tag, __u64 vtime)
{
	return tag - vtime > NN_UNITS_MAX ? 0 : tag - vtime;
}

/* nn_serve returns the time in which the clock serves dv of virtual time. rest
 * collects the fractions of nanoseconds, so that they are not lost. dv times
 * the weight is NN_UNITS_MAX at most. */
static __always_inline __u64 nn_serve(__u64 dv, __u64 active_weight, __u64 rate,
				      __u64 *rest)
{
	__u64 units = dv * active_weight, x, ns;

	x = (units >> NN_VTIME_SHIFT) * NN_NSEC_PER_SEC +
	    ((units & ((1ULL << NN_VTIME_SHIFT) - 1)) * NN_NSEC_PER_SEC >>
	     NN_VTIME_SHIFT);
	ns = x / rate;
	*rest += ((x - ns * rate) << 16) / rate;
	ns += *rest >> 16;
	*rest &= 0xffff;
	return ns;
}

static __always_inline __u64 nn_serve_ns(__u64 dv, __u32 active_weight,
					 __u64 rate)
{
	__u64 rest = 0;

	if (dv > NN_UNITS_MAX / active_weight)
		dv = NN_UNITS_MAX / active_weight;
	return nn_serve(dv, active_weight, rate, &rest);
}

static __always_inline __u32 nn_level_shift(__u32 level)
{
	return NN_SLOT_SHIFT + level * NN_LEVEL_SHIFT;
}

/* Number of the lowest bit set, 64 = none. Like every function that the loop in
 * nn_clock_advance calls, it has no branches: the verifier follows each branch
 * of each turn. */
static __always_inline __u64 nn_lowest_bit(__u64 v)
{
	v = (v & -v) - 1;
	v -= v >> 1 & 0x5555555555555555ULL;
	v = (v & 0x3333333333333333ULL) + (v >> 2 & 0x3333333333333333ULL);
	v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return v * 0x0101010101010101ULL >> 56;
}

/* The lower of two numbers below 2^63. */
static __always_inline __u64 nn_least(__u64 a, __u64 b)
{
	__u64 less = (__s64)(a - b) >> 63;

	asm volatile("" : "+r"(less));
	return b + ((a - b) & less);
}

/* Virtual time up to the end of the first slot in use. */
static __always_inline __u64 nn_wheel_next(const struct nn_clock *c)
{
	__u64 v = c->vtime, best = ~0ULL >> 1;

#pragma unroll
	for (__u32 level = 0; level < NN_WHEEL_LEVELS; level++) {
		__u32 shift = nn_level_shift(level);
		__u64 bits = c->occupied[level], base = v >> shift, ahead, used;
		__u64 by = base % NN_WHEEL_SLOTS;

		used = bits | -bits;
		asm volatile("" : "+r"(used)); /* else compilers branch */
		used = (__s64)used >> 63;
		asm volatile("" : "+r"(used));
		bits = bits >> by | bits << (-by & (NN_WHEEL_SLOTS - 1));
		ahead = ((base + nn_lowest_bit(bits) + 1) << shift) - v;
		best = nn_least((ahead & used) | (~used >> 1), best);
	}
	return best;
}

/* Virtual time has come to the end of a slot: the classes in it are now
 * idle. */
static __always_inline void nn_wheel_pop(struct nn_clock *c)
{
	__u64 v = c->vtime;

#pragma unroll
	for (__u32 level = 0; level < NN_WHEEL_LEVELS; level++) {
		__u32 shift = nn_level_shift(level);
		__u64 slot = ((v >> shift) - 1) % NN_WHEEL_SLOTS;
		__u64 part = v & ((1ULL << shift) - 1), at_end, idle;

		/* all ones at the end of a slot of this level */
		asm volatile("" : "+r"(part));
		at_end = (__s64)(part - 1) >> 63;
		asm volatile("" : "+r"(at_end));
		idle = c->wheel[level][slot] & at_end;
		c->wheel[level][slot] -= idle;
		c->occupied[level] &= ~((1ULL << slot) & at_end);
		c->active_weight -= idle;
	}
}

/* nn_clock_advance brings virtual time up to now. Without a backlogged class
 * the clock's own time stands still, and classes may make up for up to burst_ns
 * of it. The result is true if virtual time is still behind now, and the caller
 * has to call again. A call takes few steps, because the verifier follows
 * each. */
static __always_inline bool nn_clock_advance(struct nn_clock *c, __u64 rate,
					     __u64 burst_ns, __u64 now_ns)
{
	for (__u32 i = 0; i < NN_ADVANCE_STEPS; i++) {
		__u64 dt = now_ns - c->time_ns, dv, need, rest = c->rest;

		if ((__s64)dt <= 0)
			return false;
		if (!c->active_weight)
			goto idle;
		/* a long stretch goes in parts that do not end at a slot */
		dv = nn_least(nn_wheel_next(c),
			      NN_UNITS_MAX / c->active_weight);
		need = nn_serve(dv, c->active_weight, rate, &rest);
		if (need > dt) {
			/* dv is cut to whole units; only the time that it
			 * took is used up, so that nothing is lost. */
			__u64 product = dt * rate;

			dv = (product / NN_NSEC_PER_SEC) << NN_VTIME_SHIFT;
			dv += (product % NN_NSEC_PER_SEC << NN_VTIME_SHIFT) /
			      NN_NSEC_PER_SEC;
			dv /= c->active_weight;
			c->vtime += dv;
			c->time_ns +=
				nn_serve(dv, c->active_weight, rate, &c->rest);
			return false;
		}
		c->vtime += dv;
		c->time_ns += need;
		c->rest = rest;
		nn_wheel_pop(c);
	}
	return true;
idle:
	if ((__s64)(now_ns - burst_ns - c->time_ns) > 0) {
		c->idle_ns += now_ns - burst_ns - c->time_ns;
		c->time_ns = now_ns - burst_ns;
		c->rest = 0;
	}
	return false;
}

/* Does the class count as backlogged? */
static __always_inline bool nn_class_stands(const struct nn_clock *c,
					    const struct nn_class *k)
{
	return k->weight && nn_ahead(k->until & ~NN_LEVEL_MASK, c->vtime);
}

/* nn_class_paid_ns returns the time at which the class has paid for the bytes
 * that it has sent. */
static __always_inline __u64 nn_class_paid_ns(const struct nn_clock *c,
					      const struct nn_class *k,
					      __u32 weight, __u64 rate)
{
	__u64 ahead = nn_ahead(k->finish, c->vtime), active = c->active_weight;

	if (!ahead)
		return c->time_ns;
	if (!nn_class_stands(c, k))
		active += weight;
	return c->time_ns + nn_serve_ns(ahead, active, rate);
}

/* nn_class_forget limits the reservation of deferred chunks to the class's
 * unpaid bytes. Time that was kept for chunks which never left is lost. */
static __always_inline void nn_class_forget(const struct nn_clock *c,
					    struct nn_class *k, __u32 weight)
{
	__u64 ahead = nn_ahead(k->finish, c->vtime);
	__u64 part = ahead & ((1ULL << NN_VTIME_SHIFT) - 1), bytes;

	bytes = (ahead >> NN_VTIME_SHIFT) * weight +
		(part * weight >> NN_VTIME_SHIFT);
	if (k->reserved_bytes > bytes)
		k->reserved_bytes = bytes;
}

/* nn_class_sent_ns returns the time at which the class is paid, without up to
 * `most` of the bytes that deferred chunks have reserved. Without all of them
 * that is the time at which the bytes that have left are paid. */
static __always_inline __u64 nn_class_sent_ns(const struct nn_clock *c,
					      const struct nn_class *k,
					      __u32 weight, __u64 rate,
					      __u64 most)
{
	struct nn_class sent = *k;

	if (most > k->reserved_bytes)
		most = k->reserved_bytes;
	sent.finish -= nn_span(most, weight);
	return nn_class_paid_ns(c, &sent, weight, rate);
}

/* nn_clock_settles tells whether the rate was lowered shortly before now_ns. */
static __always_inline bool nn_clock_settles(const struct nn_clock *c,
					     __u64 now_ns)
{
	return c->former_until_ns &&
	       (__s64)(c->former_until_ns + NN_SETTLE_NS - now_ns) > 0;
}

/* nn_former_bytes returns how much of what a former rate promised still counts
 * at it after the rate was lowered: what leaves in 0.1 s, or 64 KB. One chunk
 * of a former, much higher rate is as large. */
static __always_inline __u64 nn_former_bytes(__u64 rate)
{
	return nn_least(NN_FORMER_MOST_BYTES, rate / 10 > NN_FORMER_LEAST_BYTES
						      ? rate / 10
						      : NN_FORMER_LEAST_BYTES);
}

/* Each connection is about a chunk ahead of its pay. Where the chunks of a
 * lower rate are smaller, nn_clock_gain returns how much of a wait for what has
 * left has not to be waited for. */
static __always_inline __u64 nn_clock_gain(const struct nn_class *k, __u64 rate,
					   __u64 wait_ns)
{
	__u64 chunk = nn_least(rate / 1000, 65536);

	if (chunk < NN_CHUNK_LEAST_BYTES)
		chunk = NN_CHUNK_LEAST_BYTES;
	if (k->mean_bytes <= chunk)
		return 0;
	return wait_ns - wait_ns / k->mean_bytes * chunk;
}

/* A lowered rate applies to chunks that are sent from now on, deferred ones
 * included. What has left already, and is more than the connections will be
 * ahead at the lowered rate, is paid in the time that the former rate promised,
 * and nn_former_bytes at least. The first class that is charged after the
 * change stands for all classes. As many bytes of chunks whose departure was
 * promised at the former rate still count at it. */
static __always_inline void nn_clock_rate(struct nn_clock *c,
					  const struct nn_class *k,
					  __u32 weight, __u64 rate,
					  __u64 now_ns)
{
	if (c->rate && rate < c->rate) {
		__u64 then =
			nn_class_sent_ns(c, k, weight, c->rate, NN_BYTES_MAX);
		__u64 now = nn_class_sent_ns(c, k, weight, rate, NN_BYTES_MAX);
		__u64 former = nn_former_bytes(rate) * NN_NSEC_PER_SEC;

		/* a rate that is lowered again and again lets no more leave */
		if (!nn_clock_settles(c, now_ns)) {
			__u64 gain = nn_clock_gain(k, rate, now - then);
			__u64 least = former / rate - former / c->rate;

			if (gain < least)
				gain = least;
			c->time_ns -= nn_least(now - then, gain);
			c->former_bytes = nn_former_bytes(rate);
		}
		c->former_rate = c->rate;
		c->former_until_ns = c->depart_ns;
		c->lowered_ns = now_ns;
	} else if (rate > c->rate) {
		c->depart_ns = 0; /* promised at a lower rate */
	}
	c->rate = rate;
}

/* nn_clock_cost returns the bytes to charge for a chunk that leaves now, and
 * that was promised at the given rate or, while the clock's rate was promised,
 * at that. */
static __always_inline __u64 nn_clock_cost(struct nn_clock *c, __u64 wire_bytes,
					   __u64 rate, __u64 promised,
					   __u64 now_ns)
{
	if ((__s64)(c->former_until_ns - now_ns) > 0)
		promised = c->former_rate;
	else if (!nn_clock_settles(c, now_ns))
		return wire_bytes;
	if (rate >= promised || c->former_bytes < wire_bytes)
		return wire_bytes;
	c->former_bytes -= wire_bytes;
	/* rates are below 2^43 here, or the quotient is what counts */
	if (rate >> 24)
		return wire_bytes * (rate >> 20) / (promised >> 20);
	return wire_bytes * rate / promised;
}

/* Take the class out of the wheel, if it stands there still. */
static __always_inline void nn_class_withdraw(struct nn_clock *c,
					      struct nn_class *k)
{
	__u32 level = k->until & NN_LEVEL_MASK, slot, w;

	if (!nn_class_stands(c, k))
		return;
	/* for verifiers that have forgotten it */
	asm volatile("" : "+r"(level));
	if (level >= NN_WHEEL_LEVELS)
		return;
	slot = ((k->until >> nn_level_shift(level)) - 1) % NN_WHEEL_SLOTS;
	w = c->wheel[level][slot];
	/* it is less only if the class was evicted and created again */
	if (w < k->weight || c->active_weight < k->weight)
		return;
	c->wheel[level][slot] = w - k->weight;
	c->active_weight -= k->weight;
	if (w == k->weight)
		c->occupied[level] &= ~(1ULL << slot);
}

/* Let the class count as backlogged until its finish, rounded up to a slot. */
static __always_inline void nn_class_stand(struct nn_clock *c,
					   struct nn_class *k, __u32 weight)
{
	__u64 v = c->vtime, ahead = k->finish - v, base = 0, distance = 0;
	__u32 level, shift = 0, slot;

	for (level = 0; level < NN_WHEEL_LEVELS; level++) {
		shift = nn_level_shift(level);
		base = v >> shift;
		distance = ((v & ((1ULL << shift) - 1)) + ahead) >> shift;
		if (distance < NN_WHEEL_SLOTS)
			break;
	}
	if (level == NN_WHEEL_LEVELS) {
		level--;
		distance = NN_WHEEL_SLOTS - 1;
	}
	slot = (base + distance) % NN_WHEEL_SLOTS;
	k->until = (base + distance + 1) << shift | level;
	k->weight = weight;
	c->wheel[level][slot] += weight;
	c->occupied[level] |= 1ULL << slot;
	c->active_weight += weight;
}

/* Charge wire bytes to the class; nn_clock_advance has been called. */
static __always_inline void nn_class_charge(struct nn_clock *c,
					    struct nn_class *k, __u32 weight,
					    __u64 wire_bytes, __u64 rate,
					    __u64 burst_bytes)
{
	__u64 span = nn_span(wire_bytes, weight), v = c->vtime;
	__u64 start = k->finish, active, credit, counted, unpaid = 0;

	/* Up to here the class has been served: all of it if it never stood in
	 * the wheel, now if it stands there, else the end of its slot. */
	if ((__s64)(start - v) > 0 && !nn_ahead(start, v))
		start = v; /* the tag is from before the wrap */
	counted = start;
	if (nn_ahead(k->until, start) ||
	    (k->weight && nn_ahead(start, k->until)))
		counted = k->until & ~NN_LEVEL_MASK;
	if ((__s64)(counted - v) > 0)
		counted = v;
	/* Beyond the wheel's end it was backlogged without being counted. */
	if ((__s64)(start - counted) > 0 && (__s64)(v - counted) > 0)
		unpaid += ((__s64)(v - start) > 0 ? start : v) - counted;

	active = c->active_weight;
	if (active < weight)
		active = weight;
	credit = (burst_bytes << NN_VTIME_SHIFT) / active;
	if ((__s64)(v - credit - start) > 0)
		start = v - credit;

	k->finish = start + span;
	/* Credit: the part of it that lies in the past and was not counted. */
	{
		__u64 from = (__s64)(counted - start) > 0 ? counted : start;
		__u64 to = (__s64)(v - k->finish) > 0 ? k->finish : v;

		if ((__s64)(to - from) > 0)
			unpaid += to - from;
	}
	nn_class_withdraw(c, k);
	k->weight = 0;
	k->until = counted & ~NN_LEVEL_MASK; /* so that it is paid once */
	if ((__s64)(k->finish - v) > 0) {
		if (c->active_weight < NN_ACTIVE_WEIGHT_MAX)
			nn_class_stand(c, k, weight);
		else
			unpaid += k->finish -
				  ((__s64)(v - start) > 0 ? v : start);
	}
	if (unpaid)
		c->time_ns += nn_serve(nn_least(unpaid, NN_UNITS_MAX / weight),
				       weight, rate, &c->rest);
}

/* nn_class_redeem uses up the reservation of a chunk that leaves now. If the
 * chunk is late, it is charged again what was forgotten of it. */
static __always_inline void nn_class_redeem(struct nn_clock *c,
					    struct nn_class *k, __u32 weight,
					    __u64 wire_bytes, __u64 rate,
					    bool late)
{
	__u64 reserved = nn_least(k->reserved_bytes, wire_bytes);

	k->reserved_bytes -= reserved;
	if (late && reserved < wire_bytes)
		nn_class_charge(c, k, weight, wire_bytes - reserved, rate, 0);
}

#endif
