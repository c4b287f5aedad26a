// Package enforce names what the daemon asks of the kernel side. It owns the
// vocabulary (NodeSpec, NodeStats, SocketStats) and no behaviour; the
// implementation for TCP is in enforce/pacing.
package enforce

import (
	"errors"
	"net/netip"
	"time"
)

// ErrNotSupported says that this kernel cannot do what was asked.
var ErrNotSupported = errors.New("not supported by this kernel")

// Kind of a node; the numbers are those of enum nn_node_kind in bpf/types.h.
type Kind uint32

// The kinds that can be enforced today.
const (
	KindSocket Kind = 1 // Subject = cookie; made by the kernel side itself, from FirstSocketNode on
	KindTree   Kind = 2 // Subject = tgid, StartBoottimeNS = its start; 0 = of those who Join
	KindCgroup Kind = 3 // Subject = cgroup v2 id (inode of its folder)
	KindUser   Kind = 5 // Subject = uid
	KindLink   Kind = 7 // Subject = LinkSubject of a device: what sockets send by it, and receive
	KindHost   Kind = 8 // Subject = 0

	// KindDestination: Subject is of the daemon's choice; it holds where SetDestinations says.
	KindDestination Kind = 6
)

// LinkSubject is the Subject of a device, by the inode number of its network namespace and
// its index there.
func LinkSubject(netns, ifindex uint32) uint64 { return uint64(netns)<<32 | uint64(ifindex) }

// LinkOf is the inverse.
func LinkOf(subject uint64) (netns, ifindex uint32) { return uint32(subject >> 32), uint32(subject) }

// Owner of a limit; the lower of the owners' ceilings holds.
type Owner int

// The owners whose wishes stand side by side on a node.
const (
	OwnerAdmin Owner = iota
	OwnerUser
	Owners
)

// Ceiling is one owner's limit in one direction.
type Ceiling struct {
	BytesPerSec uint64 // of IP packets; 0 = none
	BurstNS     uint64 // unused time that may be made up for; 0 = default
}

// Direction indexes NodeSpec.Ceilings.
type Direction int

// Directions, as in enum nn_direction of bpf/types.h.
const (
	Up Direction = iota
	Down
	Total
	Directions
)

// NodeSpec is the wanted state of a node.
type NodeSpec struct {
	ID              uint32 // chosen by the daemon, 1..MaxNodes-1, stable for the node's life
	Kind            Kind
	Subject         uint64
	StartBoottimeNS uint64 // KindTree: the process's start, so that a reused pid is another subject
	Parent          uint32 // KindTree with Subject 0: the tree around it when it is made, 0 = none
	Weight          uint32 // 1..10000, 100 by default
	Guarantee       uint64 // bytes/s that it may send at least, of every limit around it; 0 = none
	GuaranteeDown   uint64 // the same of what it receives by TCP
	PeriodNS        uint64 // in which Guarantee is given as a slice; 0 = evenly
	SliceNS         uint64 // of Link's time, as it was asked for
	Link            uint32 // the node of whose limit alone Guarantee is a part; 0 = of all
	SliceOnly       bool   // and it gets no more of that
	DSCP            uint8  // and 1, of what it sends; 0 = the program's own
	Line            Line   // KindLink: its limits count that
	Loopback        bool
	MeterOff        bool // received bytes do not count against the total
	Each            bool // each address gets a node by itself: Events tells when Peers has new ones
	Notes           bool // Peers has all whom it met, also those of whom a socket sent to others since
	// BacklogNS is how long what it sends and is no TCP may wait at its rate: what comes beyond is dropped.
	// 0 = as long as its senders' buffers make it. Nodes does not tell.
	BacklogNS uint64
	// Store is the node with Each that this one is in store for, 0 = none: the kernel side gives it
	// to an address that is met, then the daemon sets it anew without, with the Subject of its choice.
	Store    uint32
	Own      bool // only its user wants it: it yields to others where too many hold
	Ceilings [Owners][Directions]Ceiling
}

// Line is what a device's line carries for a packet beside its IP bytes.
type Line struct {
	OverheadBytes uint8
	LeastBytes    uint16 // with the overhead
	Cells         bool   // ATM's
}

// MaxNodes bounds NodeSpec.ID, FirstSocketNode those that the daemon chooses.
const (
	MaxNodes        = 16384
	FirstSocketNode = MaxNodes - MostSockets
)

// MostSockets is how many sockets may have nodes of their own, MostSocketsOfUser how
// many of a user's.
const (
	MostSockets       = 4096
	MostSocketsOfUser = 1024
)

// AsksPerSec is how many Requests a user may go on making, AsksAtOnce how many without
// a pause before.
const (
	AsksPerSec = 50
	AsksAtOnce = 64
)

// Trees of processes may be nested so deep, and so many of them may be those that only
// their user wants.
const (
	MostNested    = 16
	MostOwnNested = 3
)

// MostNamespaces is how many network namespaces of one user's making may have queues.
const MostNamespaces = 64

// ErrTooDeep says that trees would be nested too deep.
var ErrTooDeep = errors.New("limits on processes are nested too deep")

// NodeStats is what the kernel knows of a node.
type NodeStats struct {
	ID        uint32
	Parent    uint32 // the innermost node of the same or a wider kind around it; 0 = none
	Processes int    // living members (thread groups); only KindTree
	Bytes     uint64 // IP bytes that it sent, since SetNode created it
	// TotalBytes are the IP bytes charged to its limit on both directions together, sent and received; 0 without one.
	TotalBytes uint64
	Held       uint64 // first segments held back
	WaitNS     uint64 // how far the node's clock runs ahead of now
	Down       InflowStats
	Datagrams  OutflowStats
}

// OutflowStats is what waits of what a node sends and is no TCP; it counts in
// NodeStats.Bytes.
type OutflowStats struct {
	QueuedBytes uint64 // that wait, link headers included
	DelayNS     uint64 // what is sent now waits so long
	Dropped     Drops
}

// Drops are packets that were dropped, by the reason.
type Drops struct {
	QueueFull uint64 // the queue had no room for them
	NoQueue   uint64 // too far ahead of the clock, and there was no queue
	Ahead     uint64 // they left the queue too far ahead of the clock: no daemon sets its rate
}

// Sum is all of them.
func (d Drops) Sum() uint64 { return d.QueueFull + d.NoQueue + d.Ahead }

// InflowStats is what a node that limits what comes in has received.
type InflowStats struct {
	Bytes       uint64 // IP bytes let through since the limit was set
	QueuedBytes uint64 // that wait, link headers included
	DelayNS     uint64 // what comes now waits so long
	Dropped     Drops
}

// Volume is how much traffic of a sort there was.
type Volume struct{ Bytes, Packets uint64 }

// UnknownStats is traffic of which no process is known, since netnice came up. It
// is counted while a limit stands on the host.
type UnknownStats struct {
	SentSocket     Volume // by sockets; it counts in the host's limit
	SentKernel     Volume // by the kernel itself
	ReceivedSocket Volume // for sockets; it counts in the host's limit
	ReceivedKernel Volume // ICMP and the like
	ReceivedNobody Volume // for no socket
}

// SocketStats is one TCP socket that netnice keeps state for.
type SocketStats struct {
	PID         uint32 // tgid that used it last
	UID         uint32
	Nodes       []uint32 // path, innermost first
	Family      uint8    // AF_INET or AF_INET6
	Local       [16]byte // IPv4 in the first four bytes
	Remote      [16]byte
	LocalPort   uint16
	RemotePort  uint16
	QueuedBytes uint64 // in the send buffer: not sent yet, or not acknowledged
	UnsentBytes uint64
	WaitNS      uint64 // until its next planned departure; 0 = may send now
	// PromisedBytes is what its receive window lets the other end send yet, of a connection in use.
	PromisedBytes uint64
	SocketRate    uint64 // TCP_SNDRATE of its own; 0 = none
	ReceiveRate   uint64 // TCP_RCVRATE likewise
}

// Exec is a process that has executed a program.
type Exec struct {
	PID             int
	StartBoottimeNS uint64
	TimeNS          uint64 // CLOCK_MONOTONIC
}

// Power0 is what an Answer has for a power of 0 (NETNICE_POWER_0 of include/netnice.h).
const Power0 = 256

// RequestPatience is how long a program waits for the answer to a Request (NETNICE_ANSWER_MS of include/netnice.h).
const RequestPatience = 5 * time.Second

// Request is a limit that a program asks for, or about, by a socket option. Who
// asks is the kernel's word.
type Request struct {
	Number      uint64    // for Answer
	At          time.Time // when it was made; zero = not known
	PID         int
	UID, GID    uint32
	Admin       bool   // root, or of the administrators' group
	Kind        Kind   // KindTree or KindUser
	Who         uint32 // the pid or uid; 0 = who asks
	Direction   Direction
	Ask         bool   // what is in force; else it is to be
	BytesPerSec uint64 // this, 0 = none

	// OfPower: it is about what a process gets of the processors, which is Power.
	OfPower bool
	Power   int

	// Reserve is what a socket asks for itself, instead of the above but Ask.
	Reserve *SocketSlice
}

// SocketSlice is a slice of a link's time that a socket reserves; a slice of 0 is none.
type SocketSlice struct {
	PeriodNS, SliceNS uint64
	Extra             bool
}

// SocketReservation is the reservation of a socket, as it is in force.
type SocketReservation struct {
	SocketSlice
	Cookie      uint64
	UID         uint32 // whose the socket is, of those that count for all of a user's
	Link        uint32 // the node of which limit it is a part, that the socket sends by
	BytesPerSec uint64 // what it is worth
}

// Answer is what a program is told.
type Answer struct {
	Errno           uint32
	BytesPerSec     uint64 // the limit that holds, or what is reserved
	LeftBytesPerSec uint64 // could be reserved, too
	SocketSlice
}

// Peer is an address that is sent to.
type Peer struct {
	Address netip.Addr
	Netns   uint32 // inode number of the network namespace that it is sent from
	Node    uint32 // that the address got out of the store, 0 = none
}

// Gate is one that a node's packets wait at, each until fewer bytes have left than are allowed. It
// is open when nothing was allowed for GateTime; rates hold in either case.
type Gate interface {
	// Left is how many IP bytes have left since any fixed moment.
	Left() (uint64, error)
	// Allow lets packets leave until it is so many, and one beyond.
	Allow(bytes uint64) error
	// Moved delivers a value whenever something has left.
	Moved() <-chan struct{}
	// Close opens it for good.
	Close() error
}

// GateTime is how long a gate stays as it was told.
const GateTime = time.Second

// MostStored is how many nodes may be in store for one: NN_STORE in bpf/types.h.
const MostStored = 64

// Kernel is the machine's enforcement state. All methods are safe for
// concurrent use and idempotent; an error leaves what was in force in force.
type Kernel interface {
	// SetNode creates the node or changes its limits in place, and makes
	// running members and their open connections obey at once.
	SetNode(NodeSpec) error
	// RemoveNode lifts the node; members fall to its parent. What waited of it
	// may be on its way still, and what that needs stay until Drain.
	RemoveNode(id uint32) error
	// Drain waits until nothing is left of nodes and limits that were lifted.
	Drain()
	// Nodes reads back the nodes in force: what a restarted daemon adopts.
	Nodes() ([]NodeSpec, error)
	// Inherits says whether the node would have members although its process has ended:
	// another release is taken over, whose node of that number has some.
	Inherits(NodeSpec) bool
	// Settle says that the nodes of a former daemon have all been set: what another
	// release left in force goes.
	Settle() error
	Stats() ([]NodeStats, error)
	Sockets() ([]SocketStats, error)
	// Unknown is what no process is known for.
	Unknown() (UnknownStats, error)
	// Look is Stats and Sockets of one node, at a cost that does not grow with
	// the others; its processes are those of the last Stats or change.
	Look(id uint32) (NodeStats, []SocketStats, error)
	// SentBytes is Bytes of Stats for one node, which may be asked for many times a second.
	SentBytes(id uint32) (uint64, error)
	// Inspect says how the sockets stand that wanted picks, by the inode of their
	// file and the process that used them last; only those for which a limit holds.
	Inspect(wanted func(inode uint64, pid uint32) bool) ([]SocketLook, error)
	// Peers are those to whom sockets sent last for which the node holds; of one with Each also
	// those that were met since the last call, in whatever namespace (0), and that have nodes of
	// the store still; of one with Notes all that were met since the last call.
	Peers(id uint32) ([]Peer, error)
	// Probes says that a socket of this process, which has sent nothing yet, is one by which
	// a path is followed: limits on destinations are not for it.
	Probes(fd int) error
	// Gate has what the node sends and is no TCP leave only as the gate is told, which looks every
	// so often whether the next packet may. ErrNotSupported: it does not wait anywhere now, or in
	// several network namespaces.
	Gate(id uint32, every time.Duration) (Gate, error)
	// HoldQueue has a queue be there for what is sent from a network namespace (0: the daemon's) and
	// is no TCP, before anything of that is more than its share, until release is called. Some node
	// has to limit what is sent.
	HoldQueue(netns uint32) (release func(), err error)
	// Queues lists where packets may wait now.
	Queues() ([]Queue, error)
	// Maintain re-arms sockets whose callbacks others erased and adopts sockets
	// that changed hands; called once a second while there are nodes, and when
	// Events reports that a socket needs it.
	Maintain() error
	// Events delivers a value whenever a socket needs Maintain at once.
	Events() <-chan struct{}
	// SetDestinations says which nodes hold for which part of the traffic, instead of
	// what was said before, and makes open connections obey.
	SetDestinations(Destinations) error
	// Join makes a process and its descendants members of a node of KindTree whose
	// Subject is 0. What encloses the process has to enclose the node.
	Join(id uint32, pid int) error
	// Leave takes a node of KindTree, with all that is in it, out of the one to join that
	// is directly around it: it is in what is around that from now on, and its open
	// connections obey at once.
	Leave(id uint32) error
	// Trees lists the nodes of KindTree that a process is in, innermost first.
	Trees(pid int) []uint32
	// SetSubordinates says which user ids count as another's: sorted, and none in two.
	SetSubordinates([]Subordinates) error
	// FollowExecs has Execs deliver what is executed from now on, or no more.
	FollowExecs(on bool) error
	Execs() <-chan Exec
	// Requests delivers what programs ask for by a socket option, each of which
	// is to be answered: with a number of errno, and the limit that holds.
	Requests() <-chan Request
	Answer(number uint64, answer Answer) error
	// Asker is the socket by which a reservation was asked for, by the number of the
	// Request, with what it has reserved; false: it has gone.
	Asker(number uint64) (SocketReservation, bool, error)
	// Reserved lists the sockets with a reservation.
	Reserved() ([]SocketReservation, error)
	// Reserve gives the socket with that cookie a reservation, changes it, or takes it away. It
	// goes with the socket.
	Reserve(SocketReservation) error
	// SetAdminGroup says whose Requests are an administrator's, beside root's; nil =
	// nobody's.
	SetAdminGroup(gid *uint32) error
	// LostEvents counts what Execs and Events could not deliver.
	LostEvents() (uint64, error)
	// Attached says, by program name, what is attached now.
	Attached() map[string]bool
	// Counters returns the faults that failed open, by name.
	Counters() (map[string]uint64, error)
	// Close lets go of the kernel state without lifting anything.
	Close() error
	// Down detaches everything, removes every pin and closes; after an error
	// nothing is closed and it may be called again.
	Down() error
}
