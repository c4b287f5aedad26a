// Package reservations decides about reservations of a link's time. It says what each is worth in bytes/s, whether a user
// was granted it, and which of them goes when a grant shrinks. It also answers programs that reserve for one of their
// sockets. Host is the interface by which it knows the limits, and the promises on a link.
//
// It remembers nothing, and has no lock. Reservations are a part of what owners request of a node, and those of sockets are
// in the kernel. A request changes a reservation and what it is worth together, so the lock of the limits guards both.
package reservations

import (
	"fmt"
	"log/slog"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// Link is a link of whose time parts are reserved. The zero value is one without a limit.
type Link struct {
	ID          uint32 // its node
	Subject     api.Subject
	BytesPerSec uint64 // the lowest limit on what is sent, 0 = none
}

// Node is a node as the source knows it.
type Node struct {
	ID      uint32
	Subject api.Subject
	IsUser  bool   // it is the node of the user with the number Key
	Key     uint32 // of a user's node
	User    uint32 // the user who owns the requests of enforce.OwnerUser
	// Requested are the owners' reservations, of which Holding is the one in force. Worth is what that is worth.
	Requested [enforce.Owners]limit.Slice
	Holding   limit.Slice
	Worth     plan.Worth
	Grant     limit.Grant // of a user's node
}

// Host is the program that has the limits. The caller of all methods holds the lock of the limits.
type Host interface {
	// Nodes yields the nodes that have a reservation or a grant, the outermost kind first, and the latest of a kind last.
	Nodes(yield func(Node) bool)
	// Link returns the link with a name, and LinkOf the one of a node; the zero value is that of no link.
	Link(name string) Link
	LinkOf(node uint32) Link
	// CountsAs returns the user whose quota a user id uses.
	CountsAs(uid uint32) uint32
	// Ended returns the nodes of processes that have ended, with their descendants, although something is promised to
	// them. These promises do not count any more.
	Ended() map[uint32]bool
	// Promised returns how much of a link is promised to nodes and sockets, in bytes/s, but for the nodes that have ended.
	Promised(link uint32) uint64
	// Sockets lists the sockets with a reservation.
	Sockets() []enforce.SocketReservation
	// SetWorth says what the reservation of a node is worth now.
	SetWorth(node uint32, is plan.Worth)
	// Release takes an owner's reservation of a node back.
	Release(node uint32, owner enforce.Owner) error
}

// Kernel is what the source needs from the kernel side; enforce.Kernel has it.
type Kernel interface {
	Asker(number uint64) (enforce.SocketReservation, bool, error)
	Reserve(enforce.SocketReservation) error
}

// Options are what a source needs.
type Options struct {
	Log    *slog.Logger
	Kernel Kernel
	Host   Host
}

// Source decides about reservations. The caller of its methods holds the lock of the limits.
type Source struct {
	log    *slog.Logger
	kernel Kernel
	host   Host
}

// New returns a source.
func New(o Options) *Source { return &Source{log: o.Log, kernel: o.Kernel, host: o.Host} }

// Worth returns the worth of a reservation on a link with a limit on sending; without that limit it is nothing.
func (s *Source) Worth(of limit.Slice) plan.Worth {
	if of == (limit.Slice{}) {
		return plan.Worth{}
	}
	link := s.host.Link(of.Link)
	return plan.WorthOf(of, link.ID, link.BytesPerSec)
}

// Admit refuses the actor's reservation for a node on a link without a limit, and one beyond the grant.
func (s *Source) Admit(by auth.Actor, n Node) error {
	of := n.Requested[by.Owner()]
	if of == (limit.Slice{}) {
		return nil
	}
	if s.Worth(of).Link != 0 {
		return s.admitGranted(by, n)
	}
	return &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("what %s carries is not known: no limit on sending stands on it of which a part could be reserved", of.Link),
		Hint:    "netnice link " + of.Link + " --up RATE",
	}
}

// Follow updates the worth of reservations after a link has changed.
func (s *Source) Follow() {
	for n := range s.host.Nodes {
		if n.Holding == (limit.Slice{}) {
			continue
		}
		if now := s.Worth(n.Holding); now != n.Worth {
			s.host.SetWorth(n.ID, now)
		}
	}
	if err := s.followSockets(); err != nil {
		s.log.Warn("reservations of sockets were not renewed", "err", err)
	}
}
