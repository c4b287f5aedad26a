/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file defines the queue for non-TCP egress, such as UDP: the structs that
 * kernel and user side share, and the maps. Nodes, sockets and clocks are those
 * of maps.h.
 */
#ifndef NETNICE_SEND_TYPES_H
#define NETNICE_SEND_TYPES_H

#include "shape_types.h"

/* NN_SEND_MARK is the NN_MARK of egress. The mark stays on the packet, so that
 * no device below the first (a tunnel's) takes the packet again. */
#define NN_SEND_MARK 0xa000
/* Control messages pass beside the queue at a part of the limit. */
#define NN_CONTROL_PART	    32
#define NN_CONTROL_LEAST    4096 /* bytes/s */
#define NN_CONTROL_BURST_NS 1000000000ULL

/* A network namespace in which something limited sends more than its share: a
 * packet that left it would lose its socket, so each has a pair of devices of
 * its own. */
struct nn_send_place {
	__u32 queue_ifindex;  /* HTB is here */
	__u32 return_ifindex; /* and what left it comes back here */
	__u64 used_ns;	      /* when something moved in the queue, or nearly */
};

/* The way out of a device. */
struct nn_send_slot {
	__u32 ifindex; /* 0 = it has gone */
	__u32 netns;
};

struct nn_outflow_key {
	__u32 netns;
	__u32 node;
};

/* A lane is a per-program HTB class below a node in a namespace, served in
 * turn. Each program, or node below the node, has one, so that none waits for
 * the excess of others. The first lane serves all programs without their own
 * lane. */
#define NN_LANES 16
/* Minor numbers of the lanes' classes start here; those of nodes are lower. The
 * first lane has this number plus the node. The others follow the number that
 * the map lanes holds. */
#define NN_LANE_FIRST 0x8000
/* The number before a node's own lanes is that of the class in which the packet
 * waits that is next to leave, while the gate is shut. */
#define NN_GATES 1024
/* A lane that no packet entered or left for this long is empty: the packets
 * that should be in it were dropped. */
#define NN_LANE_EMPTY_NS 2000000000ULL

struct nn_lane {
	__u64 child; /* owner of the lane, 0 = none */
	__u64 came_bytes;
	__u64 left_bytes;
	__u64 used_ns;
	__u64 paid_ns; /* when the clock is paid for what has left */
	__u64 class;   /* what pays: child, or the node around whom something is
			* promised in it */
};

/* nn_outflow is the non-TCP egress of a node in a namespace. Counters grow from
 * the class's creation. They have no lock: a count that is lost in a race is
 * one of thousands. */
struct nn_outflow {
	__u64 came_bytes;	   /* IP bytes into the queue */
	__u64 bytes;		   /* and out of it, or past it */
	__u64 packets;		   /* segments out of it */
	__u64 link_bytes;	   /* HTB's count, with link headers */
	__u64 aside_bytes;	   /* let past it: within its program's share */
	__u64 dropped;		   /* packets: too far ahead of the clock */
	__u64 aside_ns;		   /* when the part that passes is paid for */
	struct nn_outflow_key key; /* its own */
	__u32 largest_bytes;	   /* largest packet, with all its segments */
	__u32 pad;
	struct nn_lane lane[NN_LANES];
};
_Static_assert(sizeof(struct nn_outflow) == 72 + NN_LANES * 48, "nn_outflow");

/* nn_gate lets a node's egress in a namespace leave only up to a count. On a
 * path whose queue has few places, one packet enters for each packet that has
 * come out. */
struct nn_gate {
	__u64 allowed_bytes; /* limit of nn_outflow.bytes */
	__u64 until_ns;	     /* then it is open: it is untended */
};

/* Reasons for which a packet passed although it should have been held. */
enum nn_send_fault {
	NN_SEND_FAULT_CLASS,  /* no class for its node */
	NN_SEND_FAULT_DEVICE, /* the device has no slot */
	NN_SEND_FAULT_HEADER, /* no room for a MAC header */
	NN_SEND_FAULT_SOCKET, /* its owner is unknown behind the queue */
	NN_SEND_FAULTS,
};

/* By namespace; the user side makes and removes them with the pair. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, __u32);
	__type(value, struct nn_send_place);
} sender SEC(".maps");

/* Devices by number and by slot; the user side writes both as they come and go.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, struct nn_device_key);
	__type(value, struct nn_device);
} send_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, __u32);
	__type(value, struct nn_send_slot);
} send_slots SEC(".maps");

/* Nodes that limit what is sent, in each namespace that has a queue; made with
 * the HTB class, removed before it. Memory only for those that exist. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES * 8);
	__type(key, struct nn_outflow_key);
	__type(value, struct nn_outflow);
} outflows SEC(".maps");

/* Minor numbers of the lanes' classes, by namespace and node. The user side
 * makes them for nodes that had packets in the queue, and removes them before
 * the classes. They have a map of their own, so that the user side does not
 * overwrite counters. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES * 8);
	__type(key, struct nn_outflow_key);
	__type(value, __u32);
} lanes SEC(".maps");

/* The user side makes and removes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_GATES);
	__type(key, struct nn_outflow_key);
	__type(value, struct nn_gate);
} gates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NN_SEND_FAULTS);
	__type(key, __u32);
	__type(value, __u64);
} send_faults SEC(".maps");

static __always_inline void nn_send_fault(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&send_faults, &reason);

	if (n)
		(*n)++;
}

static __always_inline struct nn_outflow *nn_outflow(__u32 netns, __u32 node)
{
	struct nn_outflow_key key = {.netns = netns, .node = node};

	return bpf_map_lookup_elem(&outflows, &key);
}

#endif
