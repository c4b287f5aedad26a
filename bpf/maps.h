/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* This file defines every map, with its writer, its key, the lifetime of an
 * entry and the reason for its size. */
#ifndef NETNICE_MAPS_H
#define NETNICE_MAPS_H

#include "types.h"

/* Nodes by index. The user side writes; adopt_tasks sets parents. 408 bytes
 * each, 6.4 MB: they are allocated once so that the hot path needs no hash. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, struct nn_node);
} nodes SEC(".maps");

/* Clocks by node and direction. The user side makes and removes them with the
 * node, and the datapath runs them. Only existing clocks take memory. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES *NN_DIRECTIONS);
	__type(key, struct nn_clock_key);
	__type(value, struct nn_clock);
} clocks SEC(".maps");

/* Children of clocks, made by the datapath at a child's first chunk. When the
 * map is full, the kernel evicts the least recently used one. An evicted child
 * that sends again starts with a fresh class. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct nn_class_key);
	__type(value, struct nn_class);
} classes SEC(".maps");

/* TCP sockets that some limit concerns, or that were looked at and found free.
 * An entry lives as long as its socket; an accepted socket starts with a copy
 * of its listener's entry. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct nn_socket);
} sockets SEC(".maps");

/* The same state by cookie, for sockets that have no room for it: see
 * stateless.h. When the map is full, the kernel evicts the least recently used
 * entry. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, NN_STATELESS_SOCKETS);
	__type(key, __u64);
	__type(value, struct nn_socket);
} stateless_sockets SEC(".maps");

/* The number of entries that were added to stateless_sockets. Unlimited traffic
 * pays only for one look at this number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} stateless_noted SEC(".maps");

/* The user ids that made stateless sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} stateless_users SEC(".maps");

/* The datagram that passed the egress hook last on a processor. The device that
 * the packet meets next recognizes it by this entry. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_hooked);
} hooked SEC(".maps");

/* Sockets whose send buffer is kept small. An entry lives as long as its
 * socket. The user side writes. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_buffer);
} buffers SEC(".maps");

/* Threads of limited process trees. An entry is copied at fork and ends with
 * the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nn_task);
} tasks SEC(".maps");

/* uid -> node, cgroup id -> node. The user side writes them with the node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u32);
	__type(value, __u32);
} users SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_MAX_NODES);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

/* Cookie -> node, of sockets that need one of their own: see socket.h. The user
 * side writes them with the node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_SOCKET_NODES);
	__type(key, __u64);
	__type(value, struct nn_hop);
} socket_nodes SEC(".maps");

/* Rules by the peer's address, written by the user side: see destination.h. A
 * prefix takes some 200 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_DESTINATIONS);
	__type(key, struct nn_destination_key);
	__type(value, struct nn_destination);
} destinations SEC(".maps");

/* The nodes of those rules, node 0 for one that limits nothing. The user side
 * writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_DESTINATION_USES);
	__type(key, struct nn_destination_use);
	__type(value, struct nn_hop);
} destination_uses SEC(".maps");

/* The cached results of lookups in these two maps, written by the datapath: see
 * destination_memo.h. The map takes 1 MB. A mappable map begins at a page, so
 * that each value is one cache line; no process maps it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NN_DESTINATION_MEMOS);
	__type(key, __u32);
	__type(value, struct nn_destination_memo);
} destination_memos SEC(".maps");

/* The pool of preallocated nodes, from which the datapath takes them: see
 * destination.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_STORED);
	__type(key, struct nn_stored);
	__type(value, struct nn_hop);
} stored SEC(".maps");

/* Addresses of peers, each with its node from the pool, or 0 if the pool was
 * empty. The user side removes an entry that it finds without a node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_PEERS_MET);
	__type(key, struct nn_peer_met);
	__type(value, struct nn_hop);
} peers_met SEC(".maps");

/* Peers' addresses at nodes with NN_NODE_NOTES, each with the network namespace
 * of the sender, 0 = not known yet. A full map keeps the addresses that were
 * sent to last. The user side removes the entries that it has read. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, NN_PEERS_NOTED);
	__type(key, struct nn_peer_met);
	__type(value, __u32);
} peers_noted SEC(".maps");

/* Devices that are limited: see link.h. The user side writes them with the
 * node.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_LINKS);
	__type(key, struct nn_link_key);
	__type(value, __u32);
} links SEC(".maps");

/* Devices that have a queue for non-TCP egress in front of them. An entry lives
 * as long as every packet of the device meets that queue. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, NN_QUEUED_DEVICES);
	__type(key, struct nn_link_key);
	__type(value, __u8);
} queued_devices SEC(".maps");

/* Ranges of subordinate user ids. They are sorted and do not overlap, and the
 * policy holds their number. The user side writes them from /etc/subuid: those
 * of 4096 users, 64 KB. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_SUBORDINATES);
	__type(key, __u32);
	__type(value, struct nn_subordinate);
} subordinates SEC(".maps");

/* The policy in force, written by the user side. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_policy);
} policy SEC(".maps");

/* Local ports of limited sockets. The datapath writes a port when it finds a
 * limited socket with it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nn_ports_seen);
} ports_seen SEC(".maps");

/* Owners of the ports of UDP-Lite, SCTP and DCCP, written by the datapath. An
 * entry counts until the second look after the one that noted it. A full map
 * evicts the least recently used port, whose traffic then is unlimited until it
 * is noted again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nn_port_owner_key);
	__type(value, struct nn_port_owner);
} port_owners SEC(".maps");

/* Cgroups that no node limits, as the datapath finds them. The low half of a
 * value is the epoch of the policy and the high half is the cgroup's id, so
 * that one write stores both. If cgroups share an index, the last one
 * stays. */
#define NN_FREE_CGROUPS 64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NN_FREE_CGROUPS);
	__type(key, __u32);
	__type(value, __u64);
} free_cgroups SEC(".maps");

/* Faults that failed open, by enum nn_fault. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NN_FAULTS);
	__type(key, __u32);
	__type(value, __u64);
} faults SEC(".maps");

/* Traffic of unknown owners since netnice came up, by enum nn_unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NN_UNKNOWNS);
	__type(key, __u32);
	__type(value, struct nn_volume);
} unknown SEC(".maps");

/* Events wake the daemon when a socket needs something that only the daemon can
 * do. An event begins with a word of enum nn_event. The daemon looks every
 * second for the work of lost events. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

static __always_inline void nn_fault(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&faults, &reason);

	if (n)
		(*n)++;
}

static __always_inline void nn_unknown(__u32 kind, __u64 bytes, __u32 packets)
{
	struct nn_volume *v = bpf_map_lookup_elem(&unknown, &kind);

	if (!v)
		return;
	v->bytes += bytes;
	v->packets += packets;
}

static __always_inline struct nn_policy *nn_policy(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&policy, &zero);
}

/* Has the machine a limit? */
static __always_inline bool nn_host_limited(void)
{
	struct nn_policy *p = nn_policy();

	return p && p->kinds & 1 << NN_NODE_HOST;
}

static __always_inline __u32 nn_epoch(void)
{
	struct nn_policy *p = nn_policy();

	return p ? p->epoch : 0;
}

#endif
