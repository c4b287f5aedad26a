// Package groups is the source of limits that several named processes share. Each member of a group, with its
// descendants, is a node inside the group's node. Members therefore share by weight, whatever number of processes and
// connections each has. A group ends with its last member.
//
// The package has the requests about groups and members: it decides who may join or leave, in which order that is
// brought into force, and how it is undone. It knows the owner of the limits, the daemon, by an interface, Host. It
// remembers nothing: the name of the group is a part of a member's node, and ends with it.
package groups

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// Node is the node of a process or a group, as the host has it or is to have it. The zero value is that of a process
// without one.
type Node struct {
	identity.Resolved
	ID        uint32       // 0 = there is none so far
	Group     string       // the group that a process was taken into, "" = none
	Outer     uint32       // the tree around a group, 0 = none
	Requested limit.Owners // by commands
	User      uint32       // the user who owns the limit of enforce.OwnerUser
	// Commanded says whose commands request something of the node, also for a time only.
	Commanded [enforce.Owners]bool
	OnlyUser  bool // the administrator requests nothing of the node
}

// Host is the program that has the limits. The caller of all methods but Limit holds the lock of the limits.
type Host[T Transaction] interface {
	// Limit returns the request for the limit of a group. A new group's node is to be fresh.
	Limit(by auth.Actor, req api.SetRequest, fresh identity.Resolved) Limit[T]
	// Find returns the node of a subject, and FindName the one with its name. Get returns the node with an id.
	Find(of identity.Resolved) Node
	FindName(s api.Subject) Node
	Get(id uint32) Node
	// Members lists the nodes of a group's members.
	Members(group string) []Node
	// MayChange refuses to change what another user requests of a node.
	MayChange(by auth.Actor, n Node) error
	// Quota refuses further limits of an actor, some of them on new nodes, beyond what there may be.
	Quota(by auth.Actor, limits, newNodes int) error
	// FreeID returns an id that no node has.
	FreeID() uint32
	// EndGone lifts the limits of subjects that are gone: also those of a group without members.
	EndGone()
	// Unwritten returns a warning if the last change is not in the state file; lifts says that it lifted a limit.
	Unwritten(lifts bool) []string
}

// Limit is the request for the limit of a group, without its members. Its steps do nothing if the request names no
// limit, except for those that find the node and show it.
type Limit[T Transaction] interface {
	request.Steps[T]
	// Node returns the node of the group, as it is to be from Plan on, and as it is in force from Apply on.
	Node() Node
	// SetOuter says which tree will be around a new group.
	SetOuter(id uint32)
	// IsFirst reports whether the caller has requested nothing of the group before.
	IsFirst() bool
	// IsLifted reports whether nobody will request anything of the group.
	IsLifted() bool
}

// Transaction is a change of the host's.
type Transaction interface {
	request.Undoable
	// OnFailure says how a step is undone. Then adds what is due once all is in force and written.
	OnFailure(undo func() error)
	Then(do func())
	// SetMember brings the group, the requested limits and their user of a process's node to those of n. It makes the
	// node if there is none, and lifts it if nobody requests anything of it any more.
	SetMember(n Node) error
}

// Members is what the source needs from the kernel side; enforce.Kernel has it.
type Members interface {
	Join(node uint32, pid int) error
	Leave(node uint32) error
	Trees(pid int) []uint32
	Stats() ([]enforce.NodeStats, error)
	SetNode(enforce.NodeSpec) error
	RemoveNode(id uint32) error
}

// Resolver finds processes; *identity.Resolver does.
type Resolver interface {
	Resolve(ctx context.Context, s api.Subject) (identity.Resolved, error)
}

// Options are what a source needs.
type Options[T Transaction] struct {
	Log      *slog.Logger
	Kernel   Members
	Resolver Resolver
	Host     Host[T]
}

// Source makes the requests about groups.
type Source[T Transaction] struct {
	log      *slog.Logger
	kernel   Members
	resolver Resolver
	host     Host[T]
}

// New returns a source.
func New[T Transaction](o Options[T]) *Source[T] {
	return &Source[T]{log: o.Log, kernel: o.Kernel, resolver: o.Resolver, host: o.Host}
}

// identityOf returns the identity of a group's node. The node has no process. A start time that is derived from the name
// takes the place of the process's, and distinguishes the group. Its owner is the user, or root.
func identityOf(name string, uid uint32) identity.Resolved {
	h := fnv.New32a()
	fmt.Fprintf(h, "group %s", name)
	return identity.Resolved{
		Subject: api.Subject{Kind: api.KindGroup, ID: name}, Kind: enforce.KindTree, UID: uid, Name: name,
		StartBoottimeNS: (uint64(h.Sum32()) + 1) * identity.TickNS,
	}
}

// nameOf names the subject of a node in messages.
func (s *Source[T]) nameOf(id uint32) string {
	if n := s.host.Get(id); n.ID != 0 {
		return n.Subject.String()
	}
	return "another process"
}
