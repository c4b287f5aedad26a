/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file defines the structs for shaping of ingress that kernel and user
 * side share. The maps of maps.h, which both objects use, hold a socket's owner
 * and the nodes that limit it.
 */
#ifndef NETNICE_SHAPE_TYPES_H
#define NETNICE_SHAPE_TYPES_H

#include "types.h"

/* A shaped packet carries in tc_index, which nothing else uses on its way,
 * where it came from. */
#define NN_MARK		0x8000 /* in bits 15 and 14; bit 13 is for egress */
#define NN_MARK_MASK	0xe000
#define NN_MARK_DEVICES 1024
/* Minor number of a node's HTB class is its index, the major this: */
#define NN_SHAPE_HANDLE 0x6e6e0000U

#define NN_RECENT	4 /* spans of time that are counted */
/* How long the queue of a limit may get by its receivers' windows. */
#define NN_QUEUE_NS 10000000ULL
#define NN_SPAN_NS  250000000ULL
/* The queue of a limit has room for so much at least, and for so much of its
 * rate, as the user side makes it. */
#define NN_ROOM_LEAST 196608
#define NN_ROOM_PART  20 /* of a second's */
/* This bit of the first node in a kept path says that the datagram is dropped,
 * so that its other parts need no room. */
#define NN_KEPT_DROPPED (1U << 31)

/* The pair of devices; one element, written by the user side. */
struct nn_shaper {
	__u32 queue_ifindex;  /* HTB is here */
	__u32 return_ifindex; /* and what left it comes back here */
	__u32 netns;	   /* inode number of the namespace that they are in */
	__u32 ports_known; /* all limited sockets' ports are marked */
};

/* A network namespace in which something limited lives, by its inode number. If
 * the queue is in another, home, packets go there and back by a link: a pair of
 * devices of netnice's with one end in each. */
struct nn_place {
	__u32 link_ifindex; /* the end here, 0 = the queue itself is here */
	__u32 home_ifindex; /* and the other */
	__s32 netns_id;	    /* home's id of the namespace, -1: it is home */
	__u32 look; /* the user side's last poll that found a limit here */
};

enum nn_device_flags {
	NN_DEVICE_BARE = 1 << 0,   /* its packets have no MAC header */
	NN_DEVICE_CLSACT = 1 << 1, /* and it had no clsact before */
};

/* The number of a device is its own within its namespace only. */
struct nn_device_key {
	__u32 netns;
	__u32 ifindex;
};

/* A device whose packets are looked at. */
struct nn_device {
	__u32 slot; /* 1..NN_MARK_DEVICES-1: stands in the mark */
	__u32 flags;
	__u32 link_ifindex; /* its namespace's: see nn_place */
};

/* The way back to a device. */
struct nn_slot {
	__u32 ifindex; /* 0 = it has gone */
	__u32 netns;
	__u32 home_ifindex; /* its namespace's: see nn_place */
	__s32 netns_id;
};

/* One span of time of a node. */
struct nn_span_count {
	__u32 span;	 /* which one */
	__u32 receivers; /* sockets to which something came */
	__u64 bytes;	 /* bytes out of the queue */
	__u64 offered;	 /* bytes that arrived, dropped ones included */
	__u32 opened;	 /* connections that were asked for */
	__u32 weight;	 /* sum over children that need more than their part */
	__u64 promised;	 /* guaranteed to these, bytes/s */
	__u64 modest;	 /* set aside for the others, bytes/s */
	__u32 waited_us; /* the least time in the queue; 0 = nothing left it */
	__u32 pad;
};

/* A child of a node that limits what comes in: a program, or another node. */
struct nn_sharer_key {
	__u32 node;
	__u32 generation;
	__u64 child;
};

struct nn_sharer_count {
	__u32 span;	 /* which one */
	__u32 receivers; /* its sockets that received */
	__u64 bytes;	 /* bytes that they received before the span */
	/* its part of the same counts of the node (nn_span_count): */
	__u32 weight;
	__u32 pad;
	__u64 promised;
	__u64 modest;
};

struct nn_sharer {
	struct nn_sharer_count recent[NN_RECENT];
	__u32 span; /* of datagrams: in which they were counted last */
	__u32 pad;
	__u64 due_ns; /* of datagrams: when what was let in is paid for */
};

/* nn_inflow is the ingress of a node. Counters grow from the node's creation.
 * They have no lock: a count that is lost in a race is one of thousands. */
struct nn_inflow {
	__u64 came_bytes;  /* IP bytes into the queue */
	__u64 bytes;	   /* and out of it */
	__u64 packets;	   /* segments */
	__u64 link_bytes;  /* HTB's count, with link headers */
	__u64 aside_bytes; /* let past the queue: empty TCP segments */
	__u64 gone_bytes;  /* part of came_bytes that left or was dropped */
	__u64 left_ns;	   /* when something left it last */
	__u32 share_scale; /* of a receiver's share, in 1/256 */
	__u32 scale_span;  /* in which that was looked at */
	/* the try against a long queue, or the rest after a try that failed:
	 * see shape_queue.h */
	__u32 long_span;  /* since when the queue is long: shape_queue.h */
	__u32 long_us;	  /* how long it was then */
	__u32 long_rests; /* it did not shrink, so nothing is done for now */
	__u32 pad;
	__u64 paid_ns;	 /* when a total's clock is paid for what has left */
	__u64 lapsed_ns; /* when a lapsed ceiling is paid for: shape_lapse.h */
	__u64 policed;	 /* packets dropped: too far ahead of it */
	__u64 refused;	 /* packets dropped before the queue: see nn_fits */
	struct nn_span_count recent[NN_RECENT];
};
_Static_assert(sizeof(struct nn_inflow) == 112 + NN_RECENT * 56, "nn_inflow");

/* nn_queued is what a packet carries in skb->cb while it waits. The kernel
 * leaves that alone from the queue on to the other end of the pair. */
enum nn_queued_word {
	NN_QUEUED_CLASS, /* NN_SHAPE_HANDLE | node */
	NN_QUEUED_AT,	 /* came_bytes with it, the lower half */
	NN_QUEUED_US,	 /* when it came, the lower half of us */
	NN_QUEUED_EARLY, /* bytes of its datagram that came before it */
};

/* A TCP socket whose window is kept short. */
struct nn_receiver {
	__u64 bytes_received;
	__u32 span;	 /* in which it was counted last */
	__u32 clamp;	 /* clamp that netnice set, 0 = none */
	__u32 own_clamp; /* to be given back */
	/* shape_trip.h: */
	__u32 trip_us;	 /* the path's round trip, 0 = not known by windows */
	__u32 edge;	 /* end of a window that was promised */
	__u32 edge_ms;	 /* when, by TCP's clock; 0 = there is none */
	__u32 acked_ms;	 /* when something was acknowledged last */
	__u32 echoed_ms; /* the shortest way of an echo since the promise */
	__u32 held_us;	 /* and the longest that a limit held something */
};

struct nn_ports {
	__be16 source;
	__be16 destination;
};

/* nn_whose is the owner of a received packet: the nodes that limit it, and the
 * program. */
struct nn_whose {
	struct nn_hop hops[NN_PATH_MAX];
	__u64 child; /* 0: unknown */
};

/* nn_kept identifies packets whose path is kept, because a lookup by the packet
 * does not find their socket. These are fragments, of which only the first has
 * the ports, and packets for a socket that is bound to a device, once they have
 * left that device. */
struct nn_kept {
	__u32 source[4];
	__u32 destination[4];
	struct nn_ports ports; /* the latter */
	__u32 id;	       /* the former */
	__u32 protocol;
	__u32 netns; /* addresses may be used in several */
};

/* nn_shared is the owner of traffic to sockets that share a port: see
 * shape_shared.h. */
struct nn_shared {
	struct nn_whose path; /* empty: none of them was found limited */
	__u64 found_ns;
	__u32 epoch; /* the policy's, then */
	__u32 pad;
};

/* nn_found is a task, or a socket that no task of its namespace may have, in a
 * namespace that has no entry in the map places yet. */
struct nn_found {
	__u32 netns;
	__u32 pid; /* 0: a socket */
};

/* nn_listening is the address of a listener. An IPv4 address is the last word,
 * and zeros stand for any address. */
struct nn_listening {
	__u64 netns_cookie;
	__u32 address[4];
	__u32 family;
	__u32 port;
};

/* Reasons for which a packet passed although it should have been held. */
enum nn_shape_fault {
	NN_SHAPE_FAULT_CLASS,  /* no class for its node */
	NN_SHAPE_FAULT_DEVICE, /* the device has no slot */
	NN_SHAPE_FAULT_HEADER, /* no room for a MAC header */
	NN_SHAPE_FAULT_WINDOW, /* no memory to keep a window */
	NN_SHAPE_FAULTS,
};

#endif
