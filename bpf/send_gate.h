/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The gate of a node: a packet that has its turn leaves only if fewer bytes
 * have left than are allowed to. Otherwise it goes round: into a class of its
 * own that is served before the node's lanes, at the rate at which the user
 * side has the gate looked at, so that the others wait behind it where they
 * are.
 */
#ifndef NETNICE_SEND_GATE_H
#define NETNICE_SEND_GATE_H

#include "send_hop.h"

enum nn_passage {
	NN_NO_GATE,
	NN_GATE_OPEN,
	NN_GATE_SHUT,
};

/* Not static: the verifier then looks at it once, and its stack is not on top
 * of the caller's. */
__noinline int nn_gate_at(__u32 netns, __u32 node, __u64 now_ns)
{
	struct nn_outflow_key key = {.netns = netns, .node = node};
	struct nn_gate *g = bpf_map_lookup_elem(&gates, &key);
	struct nn_outflow *f;

	if (!g || now_ns > g->until_ns)
		return NN_NO_GATE;
	f = bpf_map_lookup_elem(&outflows, &key);
	if (!f)
		return NN_NO_GATE;
	return (__s64)(g->allowed_bytes - f->bytes) > 0 ? NN_GATE_OPEN
							: NN_GATE_SHUT;
}

/* The class in which a packet goes round, 0 = there is none. Its lane is not
 * empty meanwhile, however long. hop: of the node on the path of its socket,
 * NN_PATH_MAX if it is not there any more. */
__noinline __u32 nn_gate_round(const struct nn_socket *s, __u32 netns,
			       __u32 node, __u32 hop, __u64 now_ns)
{
	struct nn_outflow_key key = {.netns = netns, .node = node};
	struct nn_send_hop at = {};
	struct nn_outflow *f;
	__u32 *minor;

	if (!s)
		return 0;
	nn_send_hop(s, hop, &at);
	minor = bpf_map_lookup_elem(&lanes, &key);
	f = bpf_map_lookup_elem(&outflows, &key);
	if (!minor || !f)
		return 0;
	if (at.node)
		nn_lane(f, nn_lane_of(f, at.lane, now_ns, false))->used_ns =
			now_ns;
	return *minor;
}

/* A packet has left: the user side, which tends the gate, measures how soon the
 * packet comes out of the path. */
__noinline int nn_gate_passed(__u32 netns, __u32 node)
{
	struct nn_queue_event event = {.kind = NN_EVENT_GATE};

	event.netns = netns;
	event.node = node;
	if (bpf_ringbuf_output(&events, &event, sizeof(event),
			       BPF_RB_FORCE_WAKEUP))
		nn_fault(NN_FAULT_EVENT_LOST);
	return 0;
}

#endif
