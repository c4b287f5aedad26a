// Package enforce names the requests of the daemon to the kernel side. It owns the vocabulary (NodeSpec, NodeStats,
// SocketStats) and the arithmetic of a line. Package enforce/shaping implements it, with enforce/pacing for TCP.
package enforce

import (
	"errors"
	"net/netip"
	"time"
)

// ErrNotSupported says that this kernel lacks the feature that the call needs.
var ErrNotSupported = errors.New("not supported by this kernel")

// Kind is the kind of a node. The numbers are those of enum nn_node_kind in bpf/types.h.
type Kind uint32

// The kinds that can be enforced today.
const (
	KindSocket Kind = 1 // Subject = cookie; the kernel side itself makes these nodes, with IDs from FirstSocketNode on
	// KindTree: Subject = tgid, StartBoottimeNS = its start. With Subject 0 its members are the processes that Join
	// names.
	KindTree   Kind = 2
	KindCgroup Kind = 3 // Subject = cgroup v2 id (inode of its folder)
	KindUser   Kind = 5 // Subject = uid
	// KindLink: Subject = LinkSubject of a device. The limit counts the traffic that sockets send and receive by it.
	KindLink Kind = 7
	KindHost Kind = 8 // Subject = 0

	// KindDestination: the daemon chooses the Subject. The limit holds for the traffic that SetDestinations names.
	KindDestination Kind = 6
)

// LinkSubject returns the Subject of a device. It consists of the inode number of the device's network namespace
// and the device's index there.
func LinkSubject(netns, ifindex uint32) uint64 { return uint64(netns)<<32 | uint64(ifindex) }

// LinkOf is the inverse of LinkSubject.
func LinkOf(subject uint64) (netns, ifindex uint32) { return uint32(subject >> 32), uint32(subject) }

// Owner is the owner of a limit. If several owners set a ceiling, the lowest one holds.
type Owner int

// The owners: a node keeps the requested limits of each apart.
const (
	OwnerAdmin Owner = iota
	OwnerUser
	Owners
)

// Ceiling is one owner's limit in one direction.
type Ceiling struct {
	BytesPerSec uint64 // rate in bytes of IP packets; 0 = none
	BurstNS     uint64 // unused time that may be made up for; 0 = default
	Lapse       Lapse  // for a ceiling that changes by itself
}

// Lapse is the moment at which a ceiling gives way to another one. The kernel side changes it at that moment, also
// while no daemon runs. Nodes reports the lapse as long as no SetNode follows.
type Lapse struct {
	BoottimeNS  uint64 // on CLOCK_BOOTTIME, which counts suspended time; 0 = at no time
	Bytes       uint64 // once NodeStats counts so many bytes in this direction; 0 = at no number
	BytesPerSec uint64 // the ceiling from then on; 0 = none
}

// Set reports whether there is a moment.
func (l Lapse) Set() bool { return l.BoottimeNS != 0 || l.Bytes != 0 }

// Uncapped is the ceiling, in bytes per second, of a node that is only counted until its lapse.
const Uncapped = 1 << 40

// Direction indexes NodeSpec.Ceilings.
type Direction int

// Directions, as in enum nn_direction of bpf/types.h.
const (
	Up Direction = iota
	Down
	Total
	Directions
)

// DefaultWeight is the weight of a node without one of its own, and MaxWeight is the highest.
const (
	DefaultWeight = 100
	MaxWeight     = 10000
)

// DefaultBurst is the unused time that a ceiling makes up for if its limit requests no other. bpf/charge.h has the same
// for the rate that a socket has by an option.
const DefaultBurst = 10 * time.Millisecond

// NodeSpec is the desired state of a node.
type NodeSpec struct {
	ID              uint32 // chosen by the daemon, 1..MaxNodes-1, stable for the node's life
	Kind            Kind
	Subject         uint64
	StartBoottimeNS uint64 // KindTree: the process's start, so that a reused pid is another subject
	Parent          uint32 // KindTree with Subject 0: the enclosing tree at creation, 0 = none
	Weight          uint32 // 1..10000, 100 by default
	Guarantee       uint64 // bytes/s that it may send at least, of every enclosing limit; 0 = none
	GuaranteeDown   uint64 // the same for the traffic that it receives by TCP
	PeriodNS        uint64 // period in which Guarantee is given as a slice; 0 = evenly
	SliceNS         uint64 // slice of Link's time, in the figures of the request
	// Link is the node with the limit that Guarantee is a part of. With 0 it is a part of every enclosing limit.
	Link      uint32
	SliceOnly bool  // it gets no more than the slice
	DSCP      uint8 // DSCP + 1 of the packets that it sends; 0 = the program's own DSCP
	Line      Line  // KindLink: its limits count this overhead
	Loopback  bool
	MeterOff  bool // received bytes do not count against the total
	// Each means per-peer limits: each address gets a node of its own. Events reports when Peers has new addresses.
	Each bool
	// Notes means that Peers lists every address that it met, also the earlier ones of a socket that has
	// sent to others since.
	Notes bool
	// BacklogNS is how long non-TCP egress of this node may wait at its rate. The queue drops packets beyond that.
	// With 0 the send buffers of the senders are the only bound. Nodes does not report this field.
	BacklogNS uint64
	// Store is the node with Each that keeps this one in its pool, 0 = none. The kernel side gives the node to an
	// address that it meets. Then the daemon sets the node again without Store, with a Subject of its choice.
	Store    uint32
	Own      bool // only its user wants it: it yields to others where a path has too many nodes
	Ceilings [Owners][Directions]Ceiling
}

// MaxNodes bounds NodeSpec.ID. FirstSocketNode bounds the IDs that the daemon chooses.
const (
	MaxNodes        = 16384
	FirstSocketNode = MaxNodes - MostSockets
)

// MostSockets is how many sockets may have nodes of their own. MostSocketsOfUser is how many sockets of one user
// may.
const (
	MostSockets       = 4096
	MostSocketsOfUser = 1024
)

// AsksPerSec is the sustained rate of Requests that a user may make. AsksAtOnce is how many a user may make at once
// after a pause.
const (
	AsksPerSec = 50
	AsksAtOnce = 64
)

// MostNested bounds how deep trees of processes may be nested. MostOwnNested bounds how many of these trees may be
// wanted by their user alone.
const (
	MostNested    = 16
	MostOwnNested = 3
)

// MostNamespaces is how many network namespaces of one user's making may have queues.
const MostNamespaces = 64

// ErrTooDeep says that the request would nest trees too deep.
var ErrTooDeep = errors.New("limits on processes are nested too deep")

// NodeStats are the figures that the kernel has of a node.
type NodeStats struct {
	ID        uint32
	Parent    uint32 // the innermost enclosing node of the same or a wider kind; 0 = none
	Processes int    // living members (thread groups); only for KindTree
	Bytes     uint64 // IP bytes sent since SetNode created the node
	// TotalBytes are the IP bytes, sent and received, charged to its limit on both directions together; 0 without
	// such a limit.
	TotalBytes uint64
	Held       uint64 // number of first segments that were deferred
	WaitNS     uint64 // how far the node's clock runs ahead of now
	Down       InflowStats
	Datagrams  OutflowStats
}

// OutflowStats describes the backlog of a node's non-TCP egress. NodeStats.Bytes includes these packets.
type OutflowStats struct {
	QueuedBytes uint64 // bytes in the queue, link headers included
	DelayNS     uint64 // time that a packet sent now waits
	Dropped     Drops
}

// Drops counts dropped packets, by the reason.
type Drops struct {
	QueueFull uint64 // the queue was full
	NoQueue   uint64 // too far ahead of the clock, and the device had no queue
	Ahead     uint64 // too far ahead of the clock as they left the queue, because no daemon sets its rate
}

// Sum returns the total over all reasons.
func (d Drops) Sum() uint64 { return d.QueueFull + d.NoQueue + d.Ahead }

// InflowStats describes the ingress of a node with a limit on received traffic.
type InflowStats struct {
	Bytes       uint64 // IP bytes that passed since the limit was set
	QueuedBytes uint64 // bytes in the queue, link headers included
	DelayNS     uint64 // time that a packet received now waits
	Dropped     Drops
}

// Volume is an amount of traffic of one sort.
type Volume struct{ Bytes, Packets uint64 }

// UnknownStats is the traffic without a known process, since netnice came up. The kernel side counts it while the
// host has a limit.
type UnknownStats struct {
	SentSocket     Volume // sent by sockets; it counts in the host's limit
	SentKernel     Volume // sent by the kernel itself
	ReceivedSocket Volume // received for sockets; it counts in the host's limit
	ReceivedKernel Volume // ICMP and the like
	ReceivedNobody Volume // for no socket
}

// SocketStats describes one TCP socket for which netnice keeps state.
type SocketStats struct {
	PID         uint32 // tgid of the process that used it last
	UID         uint32
	Nodes       []uint32 // path, innermost first
	Family      uint8    // AF_INET or AF_INET6
	Local       [16]byte // IPv4 in the first four bytes
	Remote      [16]byte
	LocalPort   uint16
	RemotePort  uint16
	QueuedBytes uint64 // bytes in the send buffer: not sent yet, or not acknowledged
	UnsentBytes uint64
	WaitNS      uint64 // time until its next planned departure; 0 = it may send now
	// PromisedBytes is how much its receive window still lets the other end send. It is set for connections in use
	// only.
	PromisedBytes uint64
	SocketRate    uint64 // its own TCP_SNDRATE; 0 = none
	ReceiveRate   uint64 // its own TCP_RCVRATE; 0 = none
}

// Exec is a process that has executed a program.
type Exec struct {
	PID             int
	StartBoottimeNS uint64
	TimeNS          uint64 // CLOCK_MONOTONIC
}

// Power0 stands in an Answer for a power of 0 (NETNICE_POWER_0 of include/netnice.h).
const Power0 = 256

// RequestPatience is how long a program waits for the answer to a Request (NETNICE_ANSWER_MS of include/netnice.h).
const RequestPatience = 5 * time.Second

// Request is a question about a limit, or a request for one, that a program makes by a socket option. The kernel
// vouches for the identity of the caller.
type Request struct {
	Number      uint64    // for Answer
	At          time.Time // time of the request; zero = not known
	PID         int
	UID, GID    uint32
	Admin       bool   // root, or a member of the administrators' group
	Kind        Kind   // KindTree or KindUser
	Who         uint32 // the pid or uid; 0 = the caller itself
	Direction   Direction
	Ask         bool   // true = the program reads the limit in force; false = it sets the limit
	BytesPerSec uint64 // the requested limit, 0 = none

	// OfPower: the request is about a process's share of the processors. Power is that share.
	OfPower bool
	Power   int

	// Reserve is the reservation that a socket asks for itself. It replaces the fields before it, except Ask.
	Reserve *SocketSlice
}

// SocketSlice is a slice of a link's time that a socket reserves. A SliceNS of 0 means no reservation.
type SocketSlice struct {
	PeriodNS, SliceNS uint64
	Extra             bool
}

// SocketReservation is the reservation of a socket that is in force.
type SocketReservation struct {
	SocketSlice
	Cookie      uint64
	UID         uint32 // owner of the socket, for the bounds on all of a user's reservations
	Link        uint32 // node of the link by which the socket sends; the reservation is a part of that node's limit
	BytesPerSec uint64 // rate of the slice
}

// Answer is the reply that a program gets to its Request.
type Answer struct {
	Errno           uint32
	BytesPerSec     uint64 // the limit that holds, or what is reserved
	LeftBytesPerSec uint64 // rate that could be reserved in addition
	SocketSlice
}

// Peer is a destination address of sent traffic.
type Peer struct {
	Address netip.Addr
	Netns   uint32 // inode number of the sender's network namespace
	Node    uint32 // node that the address got from the pool, 0 = none
}

// Gate is a credit gate. Each packet of a node waits at it until fewer bytes have left than the gate allows. A gate
// is open when nothing was allowed for GateTime. The node's rates hold in either case.
type Gate interface {
	// Left returns how many IP bytes have left since some fixed moment.
	Left() (uint64, error)
	// Allow lets packets leave until so many bytes have left, and one packet beyond.
	Allow(bytes uint64) error
	// Moved delivers a value whenever a packet has left.
	Moved() <-chan struct{}
	// Close opens the gate for good.
	Close() error
}

// GateTime is how long the last Allow of a gate holds.
const GateTime = time.Second

// MostStored is how many nodes the pool of one node may have: NN_STORE in bpf/types.h.
const MostStored = 64
