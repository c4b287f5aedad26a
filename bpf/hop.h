/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file handles one clock on the path of a transmit: it asks the clock when
 * the transmit will be paid, and charges it.
 */
#ifndef NETNICE_HOP_H
#define NETNICE_HOP_H

#include "clock.h"
#include "guarantee.h"
#include "identity.h"
#include "line.h"

#define NN_MEAN_WINDOW	 (1U << 18)
#define NN_MEAN_SETTLING (1U << 13)
/* A chunk may leave this long before its departure time where TCP's timer was
 * not set. */
#define NN_HOLD_NS 100000000ULL
/* The same for a connection's first chunk: TCP would not try again sooner. */
#define NN_HOLD_FIRST_NS 200000000ULL
/* TCP's timer is never set further ahead than this. A chunk whose departure
 * time is more than half of it away is deferred instead, as TCP tries before.
 */
#define NN_TIMER_MAX_NS 2000000000ULL
/* If the bytes that have left are paid within this time, the clock would soon
 * be idle. */
#define NN_IDLE_NS 20000000ULL
/* A deferred chunk may leave this long after its departure time, and pays
 * nothing for that. */
#define NN_LATE_NS 50000000ULL
/* Reservations worth this much time are a crowd: the time by which one chunk is
 * late has been used by another. */
#define NN_CROWD_NS 200000000ULL
/* A class pays before it sends until it has sent this much, and after that it
 * pays afterwards. Else many classes that come and go would each be a chunk
 * ahead. */
#define NN_YOUNG_BYTES 65536
#define NN_UNLIMITED   (~0ULL)

enum nn_walk {
	NN_ASK, /* only look */
	NN_CHARGE,
	NN_RESERVE, /* charge for a chunk that is deferred */
	NN_REDEEM,  /* the deferred chunk leaves now */
};

/* nn_chunks is the kind of chunks that suits the path. */
enum nn_chunks {
	NN_CHUNKS_SMALL = 1 << 0, /* class of low weight, or on a link */
	NN_CHUNKS_SLICE = 1 << 1, /* reserved in each period */
};

/* nn_apart selects a separate class beside the child's, without pacing. */
enum nn_apart {
	NN_APART_NOT,
	NN_APART_DATAGRAMS,
	NN_APART_INFLOW,
};

/* A transmit on its way along the path. */
struct nn_transmit {
	__u64 now_ns;
	__u64 wire_bytes;
	__u64 next_ns;	    /* when all clocks are paid, this one included */
	__u64 before_ns;    /* when they were, without it */
	__u64 less_held_ns; /* and without 0.1 s of held chunks' reservations */
	__u64 unheld_ns;    /* and without all of them */
	__u64 limit;	    /* lowest ceiling, ~0 = none */
	__u64 child;	    /* below the present hop */
	__u64 guarantee;    /* at each further limit, bytes/s, 0 = none */
	__u32 promised;	  /* limit at the socket's chunk before, 1024 bytes/s */
	__u16 guaranteed; /* the node that has it */
	__u16 weight;	  /* the child's */
	__u8 loopback;
	__u8 mode;	   /* enum nn_walk */
	__u8 empty;	   /* no data: never waits */
	__u8 odd;	   /* no chunk as this socket's others will be */
	__u8 calls;	   /* after which a clock was still behind now */
	__u8 chunks;	   /* bits of enum nn_chunks */
	__u8 apart;	   /* enum nn_apart */
	__u8 late;	   /* this deferred chunk's time is NN_LATE_NS ago */
	__u32 segments;	   /* of its packets: IP bytes of a full one, or with
			    * NN_COUNTED their number, 0: it is one packet */
	__u32 line_bytes;  /* part of wire_bytes that the hop's line adds */
	__u64 reserved_ns; /* worth of what is reserved by held chunks */
	__u64 slack_ns;	   /* that a turn may be away without being far off */
	__u64 newborn_ns;  /* when this is paid, in a class that sent little */
	__u64 crowd_ns;	   /* latest turn of those like it */
	__u64 young_ns;	   /* worth of it, in a class with little history */
	union {		   /* one word: the stack is full on old kernels */
		__u64 share; /* if empty: the class's least share, bytes/s */
		__u64 lowered_ns; /* else: when the lowest ceiling was lowered,
				   * 0 = never, ~0 = there is none */
	};
};

/* Moving average of a class's chunks, weighted by bytes. */
static __always_inline __u64 nn_mean(__u64 mean, __u64 bytes, __u64 window)
{
	if (!mean || bytes >= window)
		return bytes;
	return (mean * (window - bytes) + bytes * bytes) / window;
}

/* Weigh the wait by the chunk's size against the class's mean, so that the
 * sockets of one program get equal bytes, not equal numbers of chunks. */
static __always_inline __u64 nn_wait_weighed(__u64 mean, __u64 bytes,
					     __u64 wait_ns, __u64 own_ns)
{
	__u64 w;

	if (wait_ns <= own_ns || !mean)
		return wait_ns;
	w = bytes * 256 / mean;
	if (w > 1024)
		w = 1024;
	if (w < 16)
		w = 16;
	w = (wait_ns >> 8) * w;
	return w > own_ns ? w : own_ns;
}

static __always_inline void nn_later(__u64 *at_ns, __u64 than_ns)
{
	if (than_ns > *at_ns)
		*at_ns = than_ns;
}

/* The link-layer overhead of a transmit is charged on the clock of that link
 * alone. This function is not inline and keeps nothing on the stack of the
 * walk, because that stack is full on old kernels. */
__noinline int nn_line_on(struct nn_transmit *x, __u32 node)
{
	struct nn_node *n = bpf_map_lookup_elem(&nodes, &node);
	__u64 line;

	if (!x || !n)
		return 0;
	line = nn_line_bytes(n, x->wire_bytes, x->segments);
	x->line_bytes = line - x->wire_bytes;
	x->wire_bytes = line;
	return 0;
}

static __always_inline void nn_line_off(struct nn_transmit *x)
{
	x->wire_bytes -= x->line_bytes;
	x->line_bytes = 0;
}

/* nn_hop_look finds the time at which the class has paid for its earlier
 * charges, with and without the reservations of deferred chunks. */
static __always_inline void nn_hop_look(struct nn_transmit *x,
					const struct nn_clock *c,
					struct nn_class *k,
					const struct nn_class *g, __u32 weight,
					__u64 rate)
{
	__u64 paid = nn_class_paid_ns(c, k, weight, rate), sent = paid,
	      left = paid;

	if (k->reserved_bytes) {
		nn_class_forget(c, k, weight);
		/* Leaving out more than 0.1 s of it would let every chunk pass
		 * while many wait. */
		sent = nn_class_sent_ns(c, k, weight, rate, rate / 10);
		left = nn_class_sent_ns(c, k, weight, rate, NN_BYTES_MAX);
		nn_later(&x->reserved_ns,
			 k->reserved_bytes * NN_NSEC_PER_SEC / rate);
	}
	nn_later(&x->before_ns, nn_guarantee_sooner(c, g, paid, x->now_ns));
	nn_later(&x->less_held_ns, nn_guarantee_sooner(c, g, sent, x->now_ns));
	nn_later(&x->unheld_ns, nn_guarantee_sooner(c, g, left, x->now_ns));
}

/* No later chunk waits for the pay of a program that starts, sends little and
 * ends. The first chunks of connections in a class that has sent little are
 * therefore due only when they have been paid themselves. */
static __always_inline void nn_hop_newborn(
	struct nn_transmit *x, struct nn_clock *c, const struct nn_class *k,
	const struct nn_class *g, __u32 weight, __u32 active, __u64 rate)
{
	__u64 paid =
		c->time_ns + nn_serve_ns(nn_ahead(k->finish, c->vtime) +
						 nn_span(x->wire_bytes, weight),
					 active, rate);

	paid = nn_guarantee_sooner(c, g, paid, x->now_ns);
	if (x->apart) { /* as a datagram's, less what it takes alone */
		__u64 alone = x->wire_bytes * NN_NSEC_PER_SEC / rate;

		paid = paid > alone ? paid - alone : 0;
	}
	nn_later(&x->newborn_ns, paid);
	/* a connection that is older than the limit is no newcomer, for which
	 * others' SYNs would have to wait */
	if (x->mode == NN_RESERVE && !x->odd)
		nn_later(&c->newborn_due_ns, paid);
	nn_later(&x->crowd_ns, c->newborn_due_ns);
}

/* The chunk leaves. The counters hold the bytes that left, not those that are
 * reserved. */
static __always_inline void nn_hop_left(const struct nn_transmit *x,
					struct nn_clock *c)
{
	c->bytes += x->wire_bytes;
	if (x->apart != NN_APART_INFLOW)
		c->sent_bytes += x->wire_bytes;
	c->chunks++;
}

/* nn_hop_take charges the chunk. It returns the time at which the class has
 * paid for it, and in mean the size of the class's chunks. */
static __always_inline __u64 nn_hop_take(struct nn_transmit *x,
					 struct nn_clock *c, struct nn_class *k,
					 struct nn_class *g, __u32 weight,
					 __u64 rate, __u64 left,
					 __u64 burst_bytes, __u64 period_ns,
					 __u64 *mean)
{
	__u64 cost = x->wire_bytes, paid;

	/* nothing is promised to what can wait or never waits */
	if (x->mode != NN_RESERVE && x->apart != NN_APART_DATAGRAMS &&
	    (!x->empty || x->apart))
		cost = nn_clock_cost(c, x->wire_bytes, rate,
				     (__u64)x->promised << 10, x->now_ns);
	if (!g ||
	    !nn_guarantee_charge(
		    c, g, nn_guarantee_of(x->guarantee, rate), period_ns, cost,
		    rate, nn_class_paid_ns(c, k, weight, left), x->now_ns)) {
		nn_class_charge(c, k, weight, cost, rate, burst_bytes);
		if (x->mode == NN_RESERVE &&
		    k->reserved_bytes < NN_BYTES_MAX / 2)
			k->reserved_bytes += cost;
	}
	k->bytes += x->wire_bytes;
	if (x->mode == NN_CHARGE)
		nn_hop_left(x, c);
	paid = nn_guarantee_sooner(c, g, nn_class_paid_ns(c, k, weight, left),
				   x->now_ns);
	if (!x->empty) {
		/* The chunks of a former, higher rate were larger. Weighed by
		 * them, chunks at the lowered rate would wait too shortly. */
		*mean = nn_mean(k->mean_bytes, x->wire_bytes,
				nn_clock_settles(c, x->now_ns)
					? NN_MEAN_SETTLING
					: NN_MEAN_WINDOW);
		k->mean_bytes = *mean;
	}
	/* a separate class gets no departure time, nor does what can wait or
	 * what never waits */
	if (!x->apart && x->mode == NN_CHARGE && !x->empty)
		nn_later(&c->depart_ns,
			 nn_least(paid, x->now_ns + NN_TIMER_MAX_NS));
	return paid;
}

/* When a clock's rate was last lowered. */
__u64 lowered_ns;

/* Not on the stack, which has no room for it. */
static const struct nn_class nn_class_fresh;

static __always_inline struct nn_class *nn_class_get(
	const struct nn_class_key *key)
{
	struct nn_class *k = bpf_map_lookup_elem(&classes, key);

	if (k)
		return k;
	bpf_map_update_elem(&classes, key, &nn_class_fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&classes, key);
}

/* nn_class_owner returns a number that tells the classes of different keys
 * apart. */
static __always_inline __u64 nn_class_owner(const struct nn_class_key *key)
{
	return key->child ^
	       ~((__u64)key->node << 40 | (__u64)key->direction << 38);
}

/* nn_class_is tells, under the clock's lock, whether the class still is that of
 * this owner: since it was looked up the kernel may have evicted it and given
 * its memory to another key. It also begins a class that is new, which has
 * nothing to pay after finish. */
static __always_inline bool nn_class_is(struct nn_class *k, __u64 owner,
					__u64 finish)
{
	if (!k->owner) {
		k->owner = owner;
		k->finish = finish;
	}
	return k->owner == owner;
}

/* nn_hop_child returns the child of a class key. */
static __always_inline __u64 nn_hop_child(const struct nn_transmit *x)
{
	if (!x->apart)
		return x->child;
	return x->child | (x->apart == NN_APART_INFLOW ? NN_CHILD_INFLOW
						       : NN_CHILD_DATAGRAMS);
}

/* nn_hop_turn asks one clock and charges it. It is not static, so that the
 * verifier checks it once, not once for each hop of each caller. The result is
 * 1 if the clock was far behind now, or a class was evicted meanwhile: the
 * caller has to call again. */
__noinline int nn_hop_turn(struct nn_transmit *x, __u32 node, __u32 direction,
			   __u64 rate, __u64 burst_bytes)
{
	struct nn_clock_key ck = {.node = node, .direction = direction};
	struct nn_class_key kk = {.node = node, .direction = direction};
	struct nn_clock *c;
	struct nn_class *k, *g = NULL;
	__u64 paid, own, left, burst_ns = 0, mean = 0, period_ns = 0;
	__u32 weight, active;
	bool young, is_own, is_given;

	if (!x || !rate)
		return 0;
	weight = x->weight;
	if (!weight)
		weight = NN_WEIGHT_DEFAULT;
	kk.child = nn_hop_child(x);
	c = bpf_map_lookup_elem(&clocks, &ck);
	if (!c) {
		nn_fault(NN_FAULT_CLOCK_MISSING);
		return 0;
	}
	k = nn_class_get(&kk);
	if (!k) {
		nn_fault(NN_FAULT_CLASS_FULL);
		return 0;
	}
	if (x->guarantee) {
		__u32 whose = x->guaranteed; /* 6.1: a key is on the stack */
		struct nn_node *who = bpf_map_lookup_elem(&nodes, &whose);

		kk.child = NN_CHILD_GUARANTEE | x->guaranteed;
		if (who && (!who->scope_id || who->scope_id == node))
			g = nn_class_get(&kk);
		if (g) {
			period_ns = who->period_ns;
			nn_slice_only_set(g, who->flags & NN_NODE_SLICE_ONLY);
			if (period_ns)
				x->chunks |= NN_CHUNKS_SLICE;
		}
	}
	if (burst_bytes)
		burst_ns = burst_bytes * NN_NSEC_PER_SEC / rate;

	kk.child = nn_hop_child(x);
	bpf_spin_lock(&c->lock);
	is_own = nn_class_is(k, nn_class_owner(&kk), c->vtime);
	if (is_own && g) {
		kk.child = NN_CHILD_GUARANTEE | x->guaranteed;
		is_own = nn_class_is(g, nn_class_owner(&kk), x->now_ns);
	}
	if (!is_own) {
		bpf_spin_unlock(&c->lock);
		bpf_map_delete_elem(&classes, &kk);
		return 1;
	}
	if (rate < c->rate)
		lowered_ns = x->now_ns;
	nn_clock_rate(c, k, weight, rate, x->now_ns);
	if (nn_clock_advance(c, rate, burst_ns, x->now_ns) &&
	    x->calls++ < NN_ADVANCE_CALLS) {
		bpf_spin_unlock(&c->lock);
		return 1;
	}
	x->calls = 0;
	left = nn_guarantee_left(c, rate, x->now_ns);
	nn_hop_look(x, c, k, g, weight, left);
	active = c->active_weight + (nn_class_stands(c, k) ? 0 : weight);
	if (x->empty && !(rate >> 48)) {
		__u64 share = left * weight / active;

		if (g && nn_slice_only(g))
			share = 0;
		if (g)
			share += nn_guarantee_of(x->guarantee, rate - share);
		if (share < x->share)
			x->share = share;
	}
	young = k->bytes < NN_YOUNG_BYTES;
	if (young)
		nn_hop_newborn(x, c, k, g, weight, active, left);
	if (x->mode == NN_REDEEM) {
		/* a guarantee's part was not reserved in the class */
		nn_class_redeem(c, k, weight, x->wire_bytes, left,
				x->late && !g);
		nn_hop_left(x, c);
	}
	own = nn_serve_ns(nn_span(x->wire_bytes, weight), active, left);
	if (g)
		own = nn_least(own,
			       x->wire_bytes * NN_NSEC_PER_SEC /
				       nn_guarantee_of(x->guarantee, rate));
	if (young)
		nn_later(&x->young_ns, own);
	if (x->mode != NN_CHARGE && x->mode != NN_RESERVE) {
		bpf_spin_unlock(&c->lock);
		goto seen;
	}
	paid = nn_hop_take(x, c, k, g, weight, rate, left, burst_bytes,
			   period_ns, &mean);
	/* a slice is given when its period begins */
	is_given = period_ns && paid == g->finish;
	bpf_spin_unlock(&c->lock);

	if (is_given)
		goto taken;
	if (paid > x->now_ns && !x->empty && !x->odd)
		paid = x->now_ns + nn_wait_weighed(mean, x->wire_bytes,
						   paid - x->now_ns, own);
	if (young && !x->empty)
		paid += own;
taken:
	nn_later(&x->next_ns, paid);
seen:
	if (g && nn_slice_only(g))
		rate = nn_guarantee_of(x->guarantee, rate);
	if (rate < x->limit) {
		x->limit = rate;
		if (!x->empty)
			x->lowered_ns = c->lowered_ns;
	}
	return 0;
}

static __always_inline void nn_hop_charge(struct nn_transmit *x, __u32 node,
					  __u32 direction, __u64 rate,
					  __u64 burst_bytes)
{
	for (int i = 0; i <= NN_ADVANCE_CALLS; i++)
		if (!nn_hop_turn(x, node, direction, rate, burst_bytes))
			break;
}

#endif
