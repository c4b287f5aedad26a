// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/* Test only: runs the functions of clock.h, in the order in which
 * nn_hop_charge does, on a time and on charges that the test passes in. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "clock.h"
#include "guarantee.h"
#include "line.h"

char LICENSE[] SEC("license")
= "Dual BSD/GPL";

enum nn_test_mode {
	NN_TEST_ASK,
	NN_TEST_CHARGE,
	NN_TEST_RESERVE,
	NN_TEST_REDEEM,
	NN_TEST_REDEEM_LATE,
};

struct nn_test_op {
	__u64 now_ns;
	__u64 rate;
	__u64 burst_bytes;
	__u64 wire_bytes;
	__u64 child;
	__u64 guarantee; /* the child's, bytes/s, 0 = none */
	__u64 period_ns; /* in which it is given, 0 = evenly */
	__u64 only;	 /* 1: no more than it */
	__u32 node;
	__u32 weight;
	__u32 mode;
	__u32 calls; /* 0 */
};

struct nn_test_result {
	__u64 before_ns; /* paid without this charge */
	__u64 sent_ns;	 /* and without 0.1 s of what is reserved */
	__u64 left_ns;	 /* and without all of it */
	__u64 paid_ns;	 /* paid with it */
	__u64 time_ns;
	__u64 vtime;
	__u64 idle_ns;
	__u64 finish;
	__u64 reserved_bytes;
	__u32 active_weight;
	__u32 missing; /* no clock, or no room for the class */
};

/* What a line carries. */
struct nn_test_line {
	__u64 bytes; /* in, then out */
	__u32 segments;
	__u16 least;
	__u8 overhead;
	__u8 cells;
};

struct nn_test_bench {
	struct nn_test_op op;
	__u64 classes;
	__u64 step_ns;
	__u64 runs;
};

/* Made and removed by the test. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct nn_clock);
} clocks SEC(".maps");

/* Made at a class's first charge, removed by the test. Large enough for more
 * classes of default weight than a clock can count. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct nn_class_key);
	__type(value, struct nn_class);
} classes SEC(".maps");

/* Keeps the enum in the type information, for the Go side. */
enum nn_test_mode *nn_keep_mode __attribute__((unused));

struct nn_test_op op;
struct nn_test_result result;
struct nn_test_bench bench;
struct nn_test_line line;

static __always_inline struct nn_class *nn_test_class(
	const struct nn_class_key *key, __u64 finish)
{
	struct nn_class *k = bpf_map_lookup_elem(&classes, key);
	struct nn_class fresh = {.finish = finish};

	if (k)
		return k;
	bpf_map_update_elem(&classes, key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&classes, key);
}

__noinline int nn_test_turn(struct nn_test_op *o)
{
	struct nn_class_key kk = {};
	struct nn_test_result r = {};
	struct nn_clock *c;
	struct nn_class *k, *g = NULL;
	__u64 rate, left, burst_ns, cost;
	__u32 weight;

	if (!o || !o->rate)
		return 0;
	rate = o->rate;
	weight = o->weight ? o->weight : NN_WEIGHT_DEFAULT;
	kk.node = o->node;
	kk.child = o->child;
	r.missing = 1;
	c = bpf_map_lookup_elem(&clocks, &kk.node);
	if (!c)
		goto out;
	k = nn_test_class(&kk, c->vtime);
	if (!k)
		goto out;
	if (o->guarantee) {
		kk.child |= NN_CHILD_GUARANTEE;
		g = nn_test_class(&kk, o->now_ns);
		if (!g)
			goto out;
		nn_slice_only_set(g, o->only);
	}
	r.missing = 0;
	burst_ns = o->burst_bytes * NN_NSEC_PER_SEC / rate;

	bpf_spin_lock(&c->lock);
	nn_clock_rate(c, k, weight, rate, o->now_ns);
	if (nn_clock_advance(c, rate, burst_ns, o->now_ns) &&
	    o->calls++ < NN_ADVANCE_CALLS) {
		bpf_spin_unlock(&c->lock);
		return 1;
	}
	left = nn_guarantee_left(c, rate, o->now_ns);
	r.before_ns = nn_guarantee_sooner(
		c, g, nn_class_paid_ns(c, k, weight, left), o->now_ns);
	nn_class_forget(c, k, weight);
	r.sent_ns = nn_class_sent_ns(c, k, weight, left, rate / 10);
	r.left_ns = nn_class_sent_ns(c, k, weight, left, NN_BYTES_MAX);
	if (o->mode >= NN_TEST_REDEEM)
		nn_class_redeem(c, k, weight, o->wire_bytes, left,
				o->mode == NN_TEST_REDEEM_LATE);
	if (o->mode == NN_TEST_CHARGE || o->mode == NN_TEST_RESERVE) {
		cost = nn_clock_cost(c, o->wire_bytes, rate, 0, o->now_ns);
		if (g &&
		    nn_guarantee_charge(
			    c, g, nn_guarantee_of(o->guarantee, rate),
			    o->period_ns, cost, rate,
			    nn_class_paid_ns(c, k, weight, left), o->now_ns))
			cost = 0;
		else
			nn_class_charge(c, k, weight, cost, rate,
					o->burst_bytes);
		if (o->mode == NN_TEST_RESERVE)
			k->reserved_bytes += cost;
	}
	r.paid_ns = nn_guarantee_sooner(
		c, g, nn_class_paid_ns(c, k, weight, left), o->now_ns);
	if (o->mode != NN_TEST_ASK && o->mode < NN_TEST_REDEEM &&
	    r.paid_ns > c->depart_ns)
		c->depart_ns = r.paid_ns;
	r.time_ns = c->time_ns;
	r.vtime = c->vtime;
	r.idle_ns = c->idle_ns;
	r.active_weight = c->active_weight;
	r.finish = k->finish;
	r.reserved_bytes = k->reserved_bytes;
	bpf_spin_unlock(&c->lock);
out:
	result = r;
	return 0;
}

static __always_inline void nn_test_hop(struct nn_test_op *o)
{
	for (int i = 0; i <= NN_ADVANCE_CALLS; i++)
		if (!nn_test_turn(o))
			break;
}

/* One call as the test says. */
SEC("tc")
int nn_test_step(struct __sk_buff *skb)
{
	struct nn_test_op o = op;

	nn_test_hop(&o);
	return 0;
}

/* One charge of the next class, a step later than the last. */
SEC("tc")
int nn_test_bench_step(struct __sk_buff *skb)
{
	struct nn_test_op o = bench.op;
	__u64 n = bench.runs++;

	o.child = bench.classes ? n % bench.classes : 0;
	o.now_ns += n * bench.step_ns;
	nn_test_hop(&o);
	return 0;
}

/* What a line carries for a packet, or for several. */
SEC("tc")
int nn_test_line_step(struct __sk_buff *skb)
{
	struct nn_node n = {
		.line_least = line.least,
		.line_overhead = line.overhead,
		.line_cells = line.cells,
	};

	line.bytes = nn_line_bytes(&n, line.bytes, line.segments);
	return 0;
}
