/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps of shaping alone: who writes it, how long an entry lives. */
#ifndef NETNICE_SHAPE_MAPS_H
#define NETNICE_SHAPE_MAPS_H

#include "charge.h"
#include "shape_types.h"

/* Written by the user side before anything is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_shaper);
} shaper SEC(".maps");

/* The user side makes and removes them with the link. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, __u32);
	__type(value, struct nn_place);
} places SEC(".maps");

/* Devices by index and by slot; the user side writes both as they come and go.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, struct nn_device_key);
	__type(value, struct nn_device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_MARK_DEVICES);
	__type(key, __u32);
	__type(value, struct nn_slot);
} slots SEC(".maps");

/* Nodes that limit what comes in; made with the HTB class, removed before it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, struct nn_inflow);
} inflows SEC(".maps");

/* Children of the nodes that limit what comes in. The least recently used goes,
 * and begins anew. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct nn_sharer_key);
	__type(value, struct nn_sharer);
} sharers SEC(".maps");

/* What a total limit leaves of itself for what comes in, bytes/s: the user side
 * writes it, for those nodes only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, __u64);
} dues SEC(".maps");

/* Programs on devices are not interrupted by each other, and their stacks are
 * full. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_transmit);
} scratch SEC(".maps");

/* Lives with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_receiver);
} receivers SEC(".maps");

/* Paths of packets under way whose socket is not found again. The least
 * recently used goes: of 4096 datagrams in parts and flows at a time the rest
 * passes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_kept);
	__type(value, struct nn_whose);
} kept SEC(".maps");

/* By the address of the kernel's record of them. The least recently used goes,
 * and is looked after anew. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct nn_shared);
} shared SEC(".maps");

/* Whose a listener is: a connection that is asked for knows none of it. The
 * least recently used goes, and with it a short first window. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_listening);
	__type(value, struct nn_path);
} listeners SEC(".maps");

/* Of what comes for a port that no limited socket has, while NAT may lead it to
 * one, a packet is looked after as often as so much has come on a CPU, counted
 * for each port, or for some together. */
#define NN_NAT_UNSEEN_BYTES 65536
#define NN_NAT_UNSEEN_PORTS 4096

struct nn_unseen {
	__u32 bytes[NN_NAT_UNSEEN_PORTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_unseen);
} unseen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NN_SHAPE_FAULTS);
	__type(key, __u32);
	__type(value, __u64);
} shape_faults SEC(".maps");

static __always_inline void nn_shape_fault(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&shape_faults, &reason);

	if (n)
		(*n)++;
}

static __always_inline struct nn_shaper *nn_shaper(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&shaper, &zero);
}

#endif
