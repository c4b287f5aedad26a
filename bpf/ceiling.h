/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The ceiling of a node in one direction, and the lapse by which it changes
 * without the user side: at a time, or once so many bytes have gone. All that
 * depends on a ceiling asks here.
 */
#ifndef NETNICE_CEILING_H
#define NETNICE_CEILING_H

#include "maps.h"

/* The lower of two ceilings; 0 = none. */
static __always_inline __u64 nn_lower(__u64 a, __u64 b)
{
	if (!a)
		return b;
	return b && b < a ? b : a;
}

static __always_inline bool nn_limit_lapsed(const struct nn_limit *l,
					    __u64 boottime_ns, __u64 bytes)
{
	return (l->lapse_boottime_ns && boottime_ns >= l->lapse_boottime_ns) ||
	       (l->lapse_bytes && bytes >= l->lapse_bytes);
}

/* Has one of the node's ceilings in a direction lapsed, of which it has had so
 * many bytes? */
static __always_inline bool nn_lapsed_in(const struct nn_node *n,
					 __u32 direction, __u64 bytes)
{
	__u64 boottime_ns = bpf_ktime_get_boot_ns();

	return nn_limit_lapsed(&n->limits[NN_OWNER_ADMIN][direction],
			       boottime_ns, bytes) ||
	       nn_limit_lapsed(&n->limits[NN_OWNER_USER][direction],
			       boottime_ns, bytes);
}

static __always_inline __u64 nn_limit_ceiling(const struct nn_limit *l,
					      __u64 boottime_ns, __u64 bytes)
{
	return nn_limit_lapsed(l, boottime_ns, bytes)
		       ? l->lapsed_bytes_per_sec
		       : l->ceiling_bytes_per_sec;
}

/* The lower of its ceilings then. */
static __always_inline __u64 nn_ceiling_after(const struct nn_node *n,
					      __u32 direction, __u64 bytes)
{
	__u64 boottime_ns = bpf_ktime_get_boot_ns();

	return nn_lower(nn_limit_ceiling(&n->limits[NN_OWNER_ADMIN][direction],
					 boottime_ns, bytes),
			nn_limit_ceiling(&n->limits[NN_OWNER_USER][direction],
					 boottime_ns, bytes));
}

/* The bytes that a node has had in a direction. Those that it received alone
 * have no clock: shape_span.h counts them. */
static __always_inline __u64 nn_clock_bytes(__u32 node, __u32 direction)
{
	struct nn_clock_key key = {.node = node, .direction = direction};
	struct nn_clock *c = bpf_map_lookup_elem(&clocks, &key);

	return c ? c->bytes : 0;
}

/* The lower of a node's ceilings that may lapse. It is not static, so that its
 * key is not on the stack of the walk, which is full on old kernels. */
__noinline __u64 nn_ceiling_lapsing(struct nn_node *n, __u32 node,
				    __u32 direction)
{
	if (!n || direction >= NN_DIRECTIONS)
		return 0;
	return nn_ceiling_after(n, direction, nn_clock_bytes(node, direction));
}

/* The lower of a node's ceilings in one direction, 0 = none. */
static __always_inline __u64 nn_ceiling(struct nn_node *n, __u32 node,
					__u32 direction)
{
	if (n->flags & NN_NODE_LAPSES)
		return nn_ceiling_lapsing(n, node, direction);
	return nn_lower(
		n->limits[NN_OWNER_ADMIN][direction].ceiling_bytes_per_sec,
		n->limits[NN_OWNER_USER][direction].ceiling_bytes_per_sec);
}

static __always_inline __u64 nn_burst(const struct nn_node *n, __u32 direction)
{
	return nn_lower(n->limits[NN_OWNER_ADMIN][direction].burst_bytes,
			n->limits[NN_OWNER_USER][direction].burst_bytes);
}

#endif
