package destinations

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/prefixlists"
)

// Host is the program that has the limits. The caller of all methods but Limit holds the lock of the limits.
type Host[T Transaction] interface {
	NodeHost
	// Limit returns the request for one owner's limit.
	Limit(by auth.Actor, req api.SetRequest) Limit[T]
	// Named returns the nodes whose subject has this name.
	Named(s api.Subject) []Node
	// Orphans returns the nodes whose subject is gone: the node that they were under.
	Orphans() []uint32
	// MarkLeaving notes that a limit is about to be lifted. End lifts it, because its subject is gone.
	MarkLeaving(id uint32)
	End(id uint32)
	// MaySee reports whether an actor may see a limit.
	MaySee(by auth.Actor, id uint32) bool
	// Lifted returns a function that publishes that a command of the actor has lifted the limit. It is called while the
	// limit is still in force.
	Lifted(by auth.Actor, id uint32) (publish func())
	// SharedChanged notes that readers of the limits would see other addresses of names.
	SharedChanged()
	// WakePeers has the limits for each peer by itself looked at soon.
	WakePeers()
	// Unwritten returns a warning if the last change is not in the state file; lifts says that it lifted a limit.
	Unwritten(lifts bool) []string
}

// Limit is the request for one owner's limit on a part of the traffic, as the host carries it out once the node is
// known.
type Limit[T Transaction] interface {
	Common() *request.Exchange
	Check() error
	// Begin starts from a node. One without an id is to be made. Under is the subject whose traffic it limits.
	Begin(under identity.Resolved, n Node)
	Authorise() error
	Plan(tx T) error
	Admit() error
	// Apply sets the node, and never lifts it.
	Apply(tx T) error
	// Finish publishes the change, and completes the answer. Wrote adds a file that was written with the limit.
	Finish()
	Wrote(path string)
	// Node returns the node as it is to be. SetNode takes over the addresses of its names, and the node that a new one
	// is under.
	Node() Node
	SetNode(n Node)
	// IsLifted reports whether nobody will request anything of the node.
	IsLifted() bool
}

// Transaction is a change of the host's.
type Transaction interface {
	request.Undoable
	prefixlists.Transaction
	// Then adds what is due once all is in force and written.
	Then(do func())
	// NoteAssigned notes that the kernel was told which nodes hold where. RollBack tells it again, after all was undone.
	NoteAssigned()
	// Hold returns the node of a subject that one more limit will be under. It makes the node if there is none.
	Hold(under identity.Resolved) (id uint32, err error)
	// MarkLeaving notes that a limit is about to be lifted.
	MarkLeaving(id uint32)
	// LiftLimit lifts a limit, and the node that it is under if that existed only for such limits.
	LiftLimit(id uint32) error
}

// Options are what a source needs.
type Options[T Transaction] struct {
	AssignmentOptions
	Resolver *identity.Resolver
	Host     Host[T]
}

// Source makes the requests about limits on a part of the traffic.
type Source[T Transaction] struct {
	*Assignment
	opts Options[T]
	host Host[T]
}

// New returns a source.
func New[T Transaction](o Options[T]) *Source[T] {
	o.AssignmentOptions.Host = o.Host
	return &Source[T]{Assignment: NewAssignment(o.AssignmentOptions), opts: o, host: o.Host}
}

// assign tells the kernel which node holds where, in the middle of a change.
func (s *Source[T]) assign(tx T) error {
	tx.NoteAssigned()
	s.Outdate()
	return s.Assign()
}

// Own returns an owner's node for a part of the traffic, one without an id if there is none.
func (s *Source[T]) Own(subject api.Subject, owner auth.Actor) Node {
	for _, n := range s.host.Named(subject) {
		if n.OnlyUser != owner.Root() && (owner.Root() || n.User == owner.UID) {
			return n
		}
	}
	return Node{}
}

// Add brings a new limit into force. Set makes the node, which is under another node or, if that is 0, under none.
func (s *Source[T]) Add(tx T, n Node, p Part, set func(under uint32) error) (err error) {
	under := uint32(0)
	if !p.isAlone(n) {
		if under, err = tx.Hold(p.Under); err != nil {
			return err
		}
	}
	if err := set(under); err != nil {
		return err
	}
	return s.assign(tx)
}

// Lift lifts limits, once they hold for nothing.
func (s *Source[T]) Lift(tx T, ids ...uint32) error {
	for _, id := range ids {
		tx.MarkLeaving(id)
	}
	if err := s.assign(tx); err != nil {
		return err
	}
	for _, id := range ids {
		if err := tx.LiftLimit(id); err != nil {
			return err
		}
	}
	tx.Then(s.DropUnusedLists)
	return nil
}

// EndGone lifts the limits whose subject is gone.
func (s *Source[T]) EndGone() {
	gone := s.host.Orphans()
	if len(gone) == 0 {
		return
	}
	for _, id := range gone {
		s.host.MarkLeaving(id)
	}
	s.Outdate()
	s.Follow()
	for _, id := range gone {
		s.host.End(id)
	}
	s.DropUnusedLists()
}

// DropUnusedLists forgets the lists of prefixes that no limit uses any more.
func (s *Source[T]) DropUnusedLists() {
	used := map[prefixlists.Key]bool{}
	for n := range s.host.Nodes {
		if n.Selector.List != "" {
			used[n.List] = true
		}
	}
	s.opts.Lists.RemoveUnused(used)
}

// Set returns a request that sets one owner's limit. IsObserved says that no owner has named the destination: it is an
// address to which a program has sent.
func (s *Source[T]) Set(by auth.Actor, req api.SetRequest, isObserved bool) request.Steps[T] {
	return &setRequest[T]{Limit: s.host.Limit(by, req), source: s, by: by, req: req, isObserved: isObserved}
}

// Remove returns a request that lifts limits: for a user their own, for root everybody's.
func (s *Source[T]) Remove(by auth.Actor, subject api.Subject, dryRun bool) request.Steps[T] {
	return &liftRequest[T]{Exchange: request.Exchange{By: by, DryRun: dryRun}, source: s, subject: subject}
}
