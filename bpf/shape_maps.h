/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* This file defines the maps that only shaping uses, with the writer and the
 * lifetime of an entry. */
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

/* Nodes that limit ingress. An entry is made with the HTB class and removed
 * before it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, struct nn_inflow);
} inflows SEC(".maps");

/* Children of the nodes that limit ingress. A full map evicts the least
 * recently used child, which later starts with fresh counts. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct nn_sharer_key);
	__type(value, struct nn_sharer);
} sharers SEC(".maps");

/* The rate of a node's queue in IP bytes/s, as the user side writes it, for
 * nodes whose limit it is not: the part of a total limit that is left for
 * ingress, or what a line's overhead and packets beside the queue leave. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, __u64);
} queue_rates SEC(".maps");

/* Scratch space for programs on devices, because their stacks are full. These
 * programs do not interrupt each other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_transmit);
} scratch SEC(".maps");

/* Receivers with a short window. An entry lives as long as its socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_receiver);
} receivers SEC(".maps");

/* Paths of packets in the queue whose socket is not found again. A full map
 * evicts the least recently used path. Beyond 4096 fragmented datagrams and
 * flows at a time, packets pass unlimited. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_kept);
	__type(value, struct nn_whose);
} kept SEC(".maps");

/* Bytes of parts of datagrams that came before the first: see shape_early.h. A
 * full map evicts the least recently used. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_kept);
	__type(value, __u64);
} early SEC(".maps");

/* Sockets that share a port, by the address of the kernel's record of them. A
 * full map evicts the least recently used entry, which is then looked for
 * again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct nn_shared);
} shared SEC(".maps");

/* Owners of listeners. A request socket has no link to its listener's owner. A
 * full map evicts the least recently used listener, whose connections then have
 * no short first window. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_listening);
	__type(value, struct nn_path);
} listeners SEC(".maps");

/* NAT may lead traffic for a port without a limited socket to a limited one.
 * Once in this many bytes on a CPU, a packet for such a port is therefore
 * looked up. The bytes are counted for each port, or for some ports
 * together. */
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

/* UDP ports that nobody limits: see nn_udp_free. */
struct nn_udp_unlimited {
	__u32 netns; /* exclusive or an address, where it is forwarded */
	__u32 until; /* of the kernel's coarse clock, in units of 2^20 ns */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_PORTS);
	__type(key, __u32);
	__type(value, struct nn_udp_unlimited);
} udp_unlimited SEC(".maps");

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
