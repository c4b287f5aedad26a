package shaping

import (
	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
)

// unchanged are the methods of enforce.Kernel that pacing answers alone: queues add nothing to them.
type unchanged interface {
	Nodes() ([]enforce.NodeSpec, error)
	Inherits(spec enforce.NodeSpec) bool
	Settle() error
	Trees(pid int) []uint32
	SetSubordinates(list []enforce.Subordinates) error
	Requests() <-chan enforce.Request
	Answer(number uint64, a enforce.Answer) error
	Asker(number uint64) (s enforce.SocketReservation, found bool, err error)
	Reserved() (out []enforce.SocketReservation, err error)
	SetAdminGroup(gid *uint32) error
	Events() <-chan struct{}
	FollowExecs(on bool) error
	Execs() <-chan enforce.Exec
	LostEvents() (uint64, error)
	Sockets() ([]enforce.SocketStats, error)
	Stateless() (enforce.StatelessStats, error)
	Unknown() (s enforce.UnknownStats, err error)
	SentBytes(id uint32) (uint64, error)
	Peers(id uint32) ([]enforce.Peer, error)
	Probes(fd int) error
}

// pacer is what the queues need from pacing.
type pacer interface {
	pacedNodes
	pacedFigures
	socketNodes
	queueLink
	Maintain() error
	// Close and Down are those of enforce.Kernel.
	Close() error
	Down() error
}

// pacedNodes sets nodes for TCP egress. A queue for the same node is made before, or removed after.
type pacedNodes interface {
	SetNode(spec enforce.NodeSpec) error
	RemoveNode(id uint32) error
	SetDestinations(d enforce.Destinations) error
	Join(id uint32, pid int) error
	Leave(id uint32) error
	Reserve(r enforce.SocketReservation) error
	// Node returns one of the nodes in force.
	Node(id uint32) (spec enforce.NodeSpec, known bool)
	// Members lists the thread groups in a process tree.
	Members(id uint32) ([]uint32, error)
}

// pacedFigures are the figures of TCP egress. Those of the queues are added to them.
type pacedFigures interface {
	Stats() ([]enforce.NodeStats, error)
	Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error)
	Inspect(wanted func(inode uint64, pid uint32) bool) (out []enforce.SocketLook, err error)
	Attached() map[string]bool
	Counters() (map[string]uint64, error)
	ProgramFor(name string) string
}

// socketNodes has the sockets that ask for limits of their own: see socket.go.
type socketNodes interface {
	SocketsChanged() <-chan struct{}
	SocketWishes() ([]pacing.SocketWish, error)
	SocketNodes() (out []enforce.NodeSpec)
	FreeSocketNode() uint32
	AssignSockets() error
	CountsAs(uid uint32) uint32
}

// queueLink connects the hooks that watch non-TCP egress with the queues for it.
type queueLink interface {
	QueueWanted() <-chan bpf.QueueWanted
	SetQueues(there bool) error
	RenewQueues() error
	FollowGate(key bpf.OutflowKey) (left <-chan struct{}, forget func())
}
