/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * This file defines the structs and enums that kernel and user side share;
 * bpf2go makes the Go side from them. A node is the subject of limits, such as
 * a process tree or a user. A limit is one owner's request for a node. A clock
 * enforces one direction of a node.
 *
 * Names carry units: _ns is CLOCK_MONOTONIC or a span in nanoseconds, and
 * _bytes_per_sec counts IP bytes, headers included.
 */
#ifndef NETNICE_TYPES_H
#define NETNICE_TYPES_H

#define NN_NSEC_PER_SEC 1000000000ULL
#define NN_MAX_NODES	16384
/* Nodes of single sockets have the indexes after those that the daemon
 * assigns. */
#define NN_SOCKET_NODES	     4096
#define NN_STATELESS_SOCKETS 4096
/* This bit of stateless_noted says that more users had stateless sockets than
 * stateless_users holds. */
#define NN_STATELESS_OF_ALL (1U << 31)
#define NN_E2BIG	    7
/* This bit of a child's number selects its class for non-TCP egress, beside its
 * class for TCP. Tgids and indexes of nodes do not reach this bit. */
#define NN_CHILD_DATAGRAMS (1ULL << 31)
/* This child stands for everything that is received below a node. No program
 * has tgid 0. */
#define NN_CHILD_INFLOW (1ULL << 61)
/* With the node's index, this child holds the state of a node's guarantee at a
 * clock. */
#define NN_CHILD_GUARANTEE (1ULL << 60)
#define NN_PATH_MAX	   8  /* nodes that may hold for one socket */
#define NN_TREES_DEEP	   16 /* trees of processes around each other */
#define NN_SUBORDINATES	   4096
/* These are the sizes for destination rules: prefixes of all files, rules of
 * one file for one prefix, and rules in force for a tree or for everybody. */
#define NN_DESTINATIONS	       131072
#define NN_DESTINATION_ENTRIES 16
#define NN_DESTINATION_USES    65536
#define NN_DESTINATION_MEMOS   16384
#define NN_PEERS_MET	       4096
#define NN_PEERS_NOTED	       1024
/* The pool of preallocated nodes for peers has NN_STORE nodes for each node
 * with per-peer limits, and NN_STORED in all. */
#define NN_STORE	  64
#define NN_STORED	  4096
#define NN_LINKS	  1024
#define NN_QUEUED_DEVICES 4096
/* This rule set is the administrator's. Any other number is the id of the user
 * that owns the rule set. */
#define NN_BOOK_ADMIN (~0U)
/* This bit of a rule's number says that the rule applies to everybody that its
 * owner may limit. */
#define NN_RULE_EVERYBODY (1U << 31)
/* These bits restrict a rule to one protocol; without them it applies to
 * both. */
#define NN_RULE_TCP	  (1U << 30)
#define NN_RULE_UDP	  (1U << 29)
#define NN_WEIGHT_DEFAULT 100
#define NN_WEIGHT_MAX	  10000
/* A class of this weight or less is a background class. */
#define NN_WEIGHT_LIGHT 10

/* The system virtual time of a clock counts 2^-20 bytes per unit of weight. */
#define NN_VTIME_SHIFT 20
/* One slot of the wheel is 2^22 / 2^20 = 4 bytes per unit of weight: 400 bytes
 * of a class of default weight, 64 slots = 25,600 bytes ahead. A class counts
 * as active to the end of its slot. Each class that sends once and goes
 * therefore wastes up to one slot of bandwidth. */
#define NN_SLOT_SHIFT  22
#define NN_WHEEL_SLOTS 64
/* A class that owes more is in the next wheel, with slots 16 times as long, and
 * so on. The 64 slots of the last wheel are 16 MB per unit of weight. */
#define NN_WHEEL_LEVELS 5
#define NN_LEVEL_SHIFT	4

enum nn_node_kind {
	NN_NODE_NONE,
	NN_NODE_SOCKET,
	NN_NODE_TREE, /* a process and its descendants */
	NN_NODE_CGROUP,
	NN_NODE_GROUP,
	NN_NODE_USER,
	NN_NODE_DESTINATION,
	NN_NODE_LINK,
	NN_NODE_HOST,
	NN_NODE_KINDS,
};

enum nn_direction {
	NN_UP,
	NN_DOWN,
	NN_TOTAL, /* up and down on one clock */
	NN_DIRECTIONS,
};

/* nn_owner is the owner of a limit. If a node has several ceilings, the lowest
 * is in force. */
enum nn_owner {
	NN_OWNER_ADMIN,
	NN_OWNER_USER,
	NN_OWNERS,
};

enum nn_node_flags {
	NN_NODE_LIVE = 1 << 0, /* else the node is passed through */
	NN_NODE_LOOPBACK =
		1 << 1, /* limits the machine's traffic to itself too */
	NN_NODE_METER_OFF = 1 << 2, /* received bytes do not count in total */
	NN_NODE_OWN = 1 << 3,	    /* only its user set it: yields to others */
	NN_NODE_SLICE_ONLY = 1 << 4, /* no more by that link than is reserved */
	NN_NODE_EACH = 1 << 5,	     /* each address gets a node by itself: see
				      * destination.h */
	NN_NODE_STORED = 1 << 6,     /* pooled for its parent's peers */
	NN_NODE_NOTES = 1 << 7,	     /* peers' addresses are recorded */
	NN_NODE_LAPSES = 1 << 8,     /* some ceiling changes by itself */
};

/* nn_limit is one owner's limit for one direction of a node. */
struct nn_limit {
	__u64 ceiling_bytes_per_sec; /* 0 = none */
	/* The ceiling lapses at a time, or once the node has had so many bytes
	 * in this direction, as its clock or its queue counts; 0 = never. It is
	 * lapsed_bytes_per_sec from then on, 0 = none. */
	__u64 lapse_boottime_ns;
	__u64 lapse_bytes;
	__u64 lapsed_bytes_per_sec;
	__u64 min_bytes_per_sec; /* guarantee, 0 = none; up and down, of the
				    admin */
	__u64 burst_bytes;	 /* unused credit that may be made up for */
	__u32 weight;		 /* share of the rest, 0 = the node's */
	__u32 priority;
};
_Static_assert(sizeof(struct nn_limit) == 56, "nn_limit");

struct nn_node {
	__u32 kind;
	__u32 generation; /* differs for each use of the index */
	__u32 flags;
	__u32 parent;  /* index of the enclosing node of the same kind, 0 = none
			*/
	__u64 subject; /* tgid, uid, cgroup id, prefix or device index */
	__u64 start_boottime_ns; /* processes: tells a reused pid apart */
	__u32 scope_kind;	 /* 0, or NN_NODE_DESTINATION / NN_NODE_LINK: */
	__u32 scope_id;	      /* the limit holds for that part of the traffic */
	__u32 weight;	      /* as a child of its enclosing nodes, 1..10000 */
	__u32 static_sockets; /* among which it is divided where callbacks
				 cannot be had */
	__u32 dscp;	      /* and 1, of what is sent; 0 = its own */
	/* The link layer adds line_overhead bytes to a packet, sends line_least
	 * bytes at least, and uses ATM cells if line_cells: see line.h. */
	__u16 line_least;
	__u8 line_overhead;
	__u8 line_cells;
	__u64 period_ns; /* in which its guarantee is given as a slice, at the
			    link scope_id alone; 0 = evenly, everywhere */
	__u64 slice_ns;	 /* of that link's time, as was asked for */
	struct nn_limit limits[NN_OWNERS][NN_DIRECTIONS];
};
_Static_assert(sizeof(struct nn_node) == 72 + 6 * 56, "nn_node");

struct nn_clock_key {
	__u32 node;
	__u32 direction;
};

/*
 * nn_clock is the clock of one node and direction: weighted fair queueing in
 * virtual time.
 * vtime advances by rate / active_weight while classes are backlogged; the
 * wheel holds, by virtual time slot, the weights that become idle then.
 */
struct nn_clock {
	struct bpf_spin_lock lock;
	__u32 active_weight;
	__u64 time_ns; /* vtime is advanced up to here; past now = owed */
	__u64 vtime;
	__u64 bytes;	  /* charged since creation */
	__u64 sent_bytes; /* the sent part of bytes; the rest was received */
	__u64 chunks;
	__u64 held;	       /* first segments of connections sent back */
	__u64 dropped;	       /* datagrams too far ahead of it: no queue */
	__u64 depart_ns;       /* latest departure given out */
	__u64 rate;	       /* at the last charge, bytes/s */
	__u64 idle_ns;	       /* time for which no class was backlogged */
	__u64 former_rate;     /* before it was lowered */
	__u64 former_until_ns; /* departures up to here were promised at that */
	__u64 former_bytes;    /* that may still leave at that */
	__u64 lowered_ns;      /* when it was lowered */
	__u64 rest;	       /* fraction of time_ns, in 2^-16 ns */
	__u64 newborn_due_ns;  /* latest departure of a held newborn chunk */
	__u64 taken_bytes_per_sec; /* guarantees' part of the rate, at
				    * taken_at_ns */
	__u64 taken_at_ns;
	__u64 slices_ns; /* when all chunks of reservations have been sent */
	__u64 occupied[NN_WHEEL_LEVELS]; /* a bit for each slot in use */
	__u32 wheel[NN_WHEEL_LEVELS][NN_WHEEL_SLOTS];
};

struct nn_class_key {
	__u32 node;
	__u32 direction;
	__u64 child; /* a program or a node, see nn_child_* */
};

/* nn_class is the state of one child at a clock. The clock's lock guards it. */
struct nn_class {
	__u64 finish;	  /* virtual time at which all its bytes are paid; of a
			   * guarantee (NN_CHILD_GUARANTEE) the time in ns */
	__u64 until;	  /* virtual time to which it counts as active,
			   * and in the low bits the wheel's level */
	__u32 weight;	  /* its weight in the wheel, 0 = not in it */
	__u32 mean_bytes; /* moving average of a chunk, byte-weighted */
	__u64 bytes;
	__u64 reserved_bytes; /* part of bytes, charged to deferred chunks */
	__u64 owner;	      /* nn_class_owner of its key, 0 = not begun */
};

struct nn_task {
	__u32 node; /* innermost process-tree node */
	__u32 generation;
};

struct nn_hop {
	__u32 node;
	__u32 generation;
};

/* Innermost first, ends at node 0. */
struct nn_path {
	struct nn_hop hops[NN_PATH_MAX];
};

enum nn_socket_flags {
	NN_SOCK_ARMED = 1 << 0,	    /* our callbacks are on */
	NN_SOCK_ADDED_HDR = 1 << 1, /* netnice has set WRITE_HDR_OPT */
	NN_SOCK_ADDED_RTT = 1 << 2, /* netnice has set RTT */
	NN_SOCK_LOOPBACK = 1 << 3,  /* leaves by lo */
	NN_SOCK_HOLD = 1 << 4,	    /* the transmit under way goes back */
	NN_SOCK_ASKED = 1 << 5,	    /* the daemon was asked to arm it */
	NN_SOCK_OWN_KNOWN = 1 << 6, /* own_pacing is valid */
	NN_SOCK_V6 = 1 << 7,
	NN_SOCK_STARTED = 1 << 8,   /* its first chunk has left */
	NN_SOCK_SUBFLOW = 1 << 10,  /* of an MPTCP socket, which has the path */
	NN_SOCK_STATIC = 1 << 9,    /* callbacks cannot be had: see adopt.h */
	NN_SOCK_SUBFLOWS = 1 << 13, /* an MPTCP socket whose subflows know it */
	NN_SOCK_ADOPTED = 1 << 11, /* no chunk was charged since it was armed */
	NN_SOCK_NEWBORN = 1 << 12, /* held: its class has sent little */
	NN_SOCK_REFUSED = 1 << 14, /* its first SYN went back */
	NN_SOCK_STRAY = 1 << 15, /* the daemon was asked to cover it: cover.h */
	NN_SOCK_PHASED = 1 << 17,  /* its own rate has begun: charge.h */
	NN_SOCK_SMALL = 1 << 18,   /* small chunks: low weight, or on a link */
	NN_SOCK_SLICE = 1 << 19,   /* reserved in each period: sent at once */
	NN_SOCK_PROBES = 1 << 20,  /* the daemon's, by which it follows a path:
				    * free of limits on destinations */
	NN_SOCK_CHANGED = 1 << 16, /* an MPTCP socket: its rates, or its path,
				    * are not its subflows' yet */
	NN_SOCK_UNHEARD = 1 << 21, /* its segments leave no room for the
				    * callback that charges: see egress.h */
	NN_SOCK_STATELESS =
		1 << 22, /* has no state of its own: see stateless.h */
};

/* nn_socket is the state of one TCP socket, written under the socket's lock. */
struct nn_socket {
	/* owner: the process that used it last */
	__u64 child; /* the program's class */
	__u64 start_boottime_ns;
	__u64 cgroup;
	__u32 tgid;
	__u32 uid;
	__u32 epoch; /* the policy's, as the path was made */
	__u32 flags;
	struct nn_hop path[NN_PATH_MAX]; /* innermost first, ends at node 0 */

	/* pacing */
	__u64 depart_ns; /* planned departure of the next chunk */
	__u64 held_ns;	 /* since then, if due_ns */
	__u64 due_ns;	 /* of a held first chunk, 0 = none */
	__u64 ahead_ns;	 /* how far its class was ahead of its pay then */
	__u64 share_bytes_per_sec;
	__u64 own_pacing;	  /* the program's own pacing rate, ~0 = none */
	__u64 rate_bytes_per_sec; /* TCP_SNDRATE, 0 = none */
	__u64 receive_bytes_per_sec; /* TCP_RCVRATE, 0 = none */
	__u32 window_before; /* window clamp, until it is kept: see socket.h */
	__u32 window_begin;  /* clamp that netnice set instead, 0 = none */
	struct nn_hop own;   /* its own node, also the first of the path */
	struct nn_hop to[NN_OWNERS]; /* after it: see destination.h */
	__u8 peer[16];		     /* IPv4 as ::ffff:a.b.c.d */
	__u16 service_port;	     /* the peer's, or its own if it accepted */
	__u8 peer_known;
	__u8 dscp; /* the innermost node's that has one, and 1: see meter.h */
	__u8 protocol; /* TCP's or UDP's, 0 = not known */
	__u8 pad[3];
	__u64 rate_clock_ns;
	__u32 prepaid_bytes;	   /* charged when they were held */
	__u32 clamp_segments;	   /* congestion window's limit, 0 = none */
	__u64 limit_bytes_per_sec; /* lowest on the path, as last seen */

	/* Sockets that are not TCP's: see datagram.h. */
	union {
		__u64 queue_asked_ns; /* when the daemon was asked for one */
		/* TCP: see acknowledge.h. */
		__u64 ack_finish_ns; /* when all is paid that left before it */
	};
	__u32 queue_ifindex; /* device before which one took its last packet */
	__u32 queue_epoch;   /* the policy's, then */
	union {
		__u64 queued_ns;   /* when a packet came into it or left it */
		__u64 ack_next_ns; /* TCP: when its next one is due */
	};
	union {
		__u32 queued_packets; /* packets in the queue */
		__u32 ack_edge;	      /* TCP: where the offered window ends */
	};
	__u32 out_ifindex;   /* device by which it sends, 0 = none yet */
	__u32 queued_bytes;  /* bytes in the queue */
	__u32 largest_bytes; /* of its datagrams, with the segments they stand
				for */

	__u64 reserve_asked; /* number of its last question for a reservation,
				0 = none */
	__u32 met_walk;	 /* in which its user was seen to have it, 0 = none yet:
			    see follow.h */
	__u32 out_netns; /* inode number of that device's network namespace */
	struct nn_hop link; /* of that device, the last of the path: see link.h
			     */
	__u32 stranger; /* process that sent on it and does not have it open */
	__u32 stranger_epoch;  /* the policy's epoch then: see sent_by.h */
	__s64 unsettled_bytes; /* TCP: charged, and not seen leaving by the
			     egress hook; below 0: left, and not charged */
};

/* nn_buffer is the send buffer of a non-TCP socket while the user side keeps it
 * small: the bytes in it wait in a queue. */
struct nn_buffer {
	__u32 own_bytes; /* to be given back, 0 = it is the program's own */
	__u32 set;	 /* size that the user side, no program, has set */
};

/* nn_policy is the state in force. The map has one element, and only the user
 * side writes it. */
struct nn_policy {
	__u32 epoch; /* changes with the set of nodes */
	__u32 kinds; /* 1 << kind of those that have a node */
	__u32 host_node;
	__u32 queues; /* of non-TCP egress; changes with each, 0 = none */
	__u64 cover;  /* the cgroup that the egress hook is on, 0 = the root */
	__u32 subordinates; /* entries of the map of that name */
	__u32 daemon;	    /* 1: one runs, unless it was killed */
	__u32 destinations; /* enum nn_destinations_flags */
	__u32 marks;	    /* 1: some node has a DSCP */
};

enum nn_destinations_flags {
	NN_DESTINATIONS_ANY = 1 << 0,  /* some rule is for a destination */
	NN_DESTINATIONS_DOWN = 1 << 1, /* and some such rule limits ingress */
};

/* The longest prefix of a peer's address that a file's rules name. */
struct nn_destination_key {
	__u32 prefixlen; /* in bits: 32 for the rule set, then the address's */
	__u32 book;
	__u8 addr[16];
};

/* A rule that covers all of the prefix. */
struct nn_destination_entry {
	__u32 rule; /* 0 = no more */
	__u16 port_from;
	__u16 port_to;
};

/* nn_destination holds all rules of the rule set that cover the prefix, in
 * their order. */
struct nn_destination {
	struct nn_destination_entry entries[NN_DESTINATION_ENTRIES];
};

/* nn_destination_use is the key to a rule's node. A rule has one for each
 * process tree that it matches, or one for everybody. */
struct nn_destination_use {
	__u32 rule;
	__u32 scope; /* node of the tree, 0 for everybody */
};

/* nn_stored is a preallocated node for an address to which a socket below
 * another node will send. */
struct nn_stored {
	__u32 node;
	__u32 generation;
	__u32 slot; /* 0..NN_STORE-1 */
};

/* nn_destination_memo is the cached result for a peer of a socket with that
 * path. It is one cache line. */
struct nn_destination_memo {
	__u64 sum; /* checksum over the other words */
	__u64 peer[2];
	__u64 path[2];	   /* 16 bits for each node, without those found */
	__u64 who;	   /* epoch, uid */
	__u64 answer;	   /* port, protocol; nodes that hold, by owner */
	__u64 generations; /* the generations of these nodes */
};
_Static_assert(sizeof(struct nn_destination_memo) == 64, "nn_destination_memo");

/* nn_peer_met is a peer's address for which the node needs a node of its
 * own. */
struct nn_peer_met {
	__u32 node;
	__u32 generation;
	__u8 peer[16]; /* IPv6: the 64 bits of a site */
};

/* nn_link_key is a device whose traffic is limited. It is the key to the link's
 * node. */
struct nn_link_key {
	__u32 netns; /* inode number */
	__u32 ifindex;
};

/* nn_subordinate is a range of user ids that a user may use in namespaces. They
 * count as ids of that user. */
struct nn_subordinate {
	__u32 first;
	__u32 last;
	__u32 owner;
	__u32 pad;
};

/* nn_fault is a reason why traffic passed although netnice should have limited
 * it. */
enum nn_fault {
	NN_FAULT_CLOCK_MISSING,	 /* of a node on a path */
	NN_FAULT_CLASS_FULL,	 /* no room for a program's class at a clock */
	NN_FAULT_TASK_STORAGE,	 /* a thread could not be marked */
	NN_FAULT_SOCKET_STORAGE, /* no room for a socket's state */
	NN_FAULT_EVENT_LOST,	 /* the user side's ring buffer is full */
	NN_FAULT_PATH_FULL,	 /* a ninth node: a user's own does not hold */
	NN_FAULT_STORE_EMPTY,	 /* an address waits for the user side's node */
	NN_FAULTS,
};

/* nn_unknown is a kind of traffic without a known owner. It is counted where a
 * BPF program looks at it anyway. */
enum nn_unknown {
	NN_UNKNOWN_SENT_SOCKET, /* sent by a socket without a known process */
	NN_UNKNOWN_SENT_KERNEL, /* sent by the kernel: answers, resets */
	NN_UNKNOWN_CAME_SOCKET, /* for a socket without a known process */
	NN_UNKNOWN_CAME_KERNEL, /* ICMP and the like */
	NN_UNKNOWN_CAME_NOBODY, /* for no socket: forwarded, refused, too late;
				   or for a group, of whoever takes part */
	NN_UNKNOWNS,
};

struct nn_volume {
	__u64 bytes; /* IP bytes */
	__u64 packets;
};

enum nn_event {
	NN_EVENT_NONE,
	NN_EVENT_ARM,	/* callbacks that only an iterator can switch on */
	NN_EVENT_RATE,	/* a socket has a rate: the egress hook is needed */
	NN_EVENT_HELD,	/* a chunk is held: TCP would try again late */
	NN_EVENT_COVER, /* a limited socket is outside the egress hook's cgroup
			 */
	NN_EVENT_QUEUE, /* datagrams of a limited socket need a queue */
	NN_EVENT_GATE,	/* something has left by a gate (send_gate.h) */
};

/* nn_egress_event is the record of NN_EVENT_RATE and NN_EVENT_COVER, and
 * nn_queue_event that of NN_EVENT_QUEUE and NN_EVENT_GATE. The other events are
 * one word. */
struct nn_egress_event {
	__u32 kind;
	__u32 pad;
	__u64 cgroup; /* the socket's */
};

struct nn_queue_event {
	__u32 kind;
	__u32 netns; /* inode number of the namespace that it is in */
	__u32 tgid;  /* the socket's last user, most likely in netns */
	__u32 node;  /* node of the gate */
};

/* nn_limit_asked is a limit that a program requests or queries by the option
 * NETNICE_LIMIT. The option's struct begins with the same words. */
struct nn_limit_asked {
	__u32 which;
	__u32 who;
	__u32 direction;
	__u32 error;
	__u64 bytes_per_sec;
};

/* nn_reservation_asked is a reservation that a program requests or queries by
 * the option NETNICE_RESERVE. The option's struct is the same. */
struct nn_reservation_asked {
	__u64 period_ns;
	__u64 slice_ns;
	__u32 extra;
	__u32 error;
	__u64 bytes_per_sec;
	__u64 left_bytes_per_sec;
};

/* nn_request passes such a request to the daemon, with the caller's identity as
 * the kernel reports it. */
struct nn_request {
	__u64 number; /* number of the answer */
	__u32 tgid;
	__u32 uid; /* effective */
	__u32 gid;
	__u32 admin;	/* root, or of the administrators' group */
	__u32 reserves; /* the socket by which it is asked, else a limit */
	__u32 pad;
	struct nn_limit_asked asked;
	struct nn_reservation_asked reserve;
};

struct nn_answer {
	__u64 bytes_per_sec;
	__u64 left_bytes_per_sec; /* rate that can still be reserved */
	__u64 period_ns;
	__u64 slice_ns;
	__u32 extra;
	__u32 error; /* errno number */
};

/* A process that executes a program. */
struct nn_exec_event {
	__u64 start_boottime_ns;
	__u64 time_ns;
	__u32 tgid;
	__u32 pad;
};

/* Output of the iterators. */
struct nn_task_record {
	__u32 tgid;
	__u32 node;
	__u64 cgroup;
};

/* A member that was marked. */
struct nn_member_record {
	__u64 cgroup;
	__u32 nests; /* in a tree that is nested in the new one */
	__u32 far;   /* no member yet: whether it is one was too far to see */
};

/* A packet that has passed the egress hook. */
struct nn_hooked {
	__u64 socket; /* the address of its struct nn_socket */
	__u64 packet; /* its own, or of the part of it that met a device next */
	__u32 ifindex;
	__u32 fragments;    /* IP id of the datagram that waited last */
	__u64 fragments_of; /* and its struct nn_socket; see send_from.h */
};

/* nn_socket_seen follows the struct nn_socket in a record of the iterators. */
struct nn_socket_seen {
	__u8 local[16];
	__u8 remote[16];
	__u64 queued_bytes;
	__u64 unsent_bytes;
	__u64 cgroup;	  /* cgroup in which it was made */
	__u64 inode;	  /* inode of its file, 0 = none */
	__u64 sent_bytes; /* IP bytes, TCP only */
	__u64 received_bytes;
	__u64 time_ns; /* when this was so */
	__u64 cookie;
	__u32 netns;
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u8 tcp_state;
	__u8 armed;	/* netnice's callback flag is set on the socket */
	__u32 protocol; /* an MPTCP socket has subflows, which are armed */
	__u32 stray;	/* the egress hook does not see it */
	__u32 promised_bytes; /* TCP in use: bytes the peer may still send */
};

/* nn_buffer_hop is the class in which a socket sends at a node of its path. */
struct nn_buffer_hop {
	__u64 child;
	__u32 node; /* 0 = it has gone */
	__u32 pad;
};

/* nn_buffer_record is a socket with packets in a queue, or with a small send
 * buffer. */
struct nn_buffer_record {
	__u64 inode; /* inode of its file */
	__u32 tgid;  /* process that used it last */
	__u32 netns;
	__u32 own_bytes;  /* as in nn_buffer */
	__u32 size_bytes; /* size of its send buffer */
	__u32 used_bytes; /* used part of size_bytes */
	__u32 queued_bytes;
	__u32 largest_bytes;
	__u32 locked; /* 1: a call has it, maybe while it waits for room */
	struct nn_buffer_hop hops[NN_PATH_MAX];
};

/* nn_port_owner is the owner of a port of UDP-Lite, SCTP or DCCP: see
 * port_owner.h. */
struct nn_port_owner_key {
	__u32 netns; /* inode number */
	__u16 port;
	__u8 protocol;
	__u8 v6;
	__u32 address[4]; /* IPv4: the first; all 0 = any */
};

struct nn_port_owner {
	struct nn_path path;
	__u64 child;
	__u8 look; /* number of the look in which it was noted */
	__u8 pad[7];
};

#define NN_PORTS 65536

/* nn_ports_seen holds, for each local port, the number of the last poll that
 * found a limited socket with it. The numbers go from 1 to 255 in turn; 0 means
 * that no poll found one. */
struct nn_ports_seen {
	__u8 look;
	__u8 pad[7];
	__u8 in_look[NN_PORTS];
};

#endif
