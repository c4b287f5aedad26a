// Package peers is the source of limits on single peers: of a limit for each address of a destination ("/each"), every
// address that traffic goes to has the limit by itself. A limit on all of the addresses, which is never reached, finds
// them. Each found address has a node with the requested limit. The kernel side takes that node from a pool of
// preallocated ones (pool.go), and reports it. The node ends a minute after the last connection and byte.
//
// The package decides which addresses have nodes, when these end, and how many are preallocated. It knows who sets and
// lifts limits by an interface, Host. The lock of the limits guards the pool, too: the numbers of its nodes are not free
// for limits.
package peers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/failure"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/request"
)

const (
	// idleTime is how long a peer's node stays without a connection or a byte.
	idleTime = time.Minute
	// mostPeers is the most addresses with nodes for one limit; further addresses are not limited.
	mostPeers = 2048
	// leastPause is the least time between two passes, and restFactor the time in relation to that of the pass before. The
	// pauses keep the passes within a fifth of a processor. peersAtOnce is how many nodes one pass makes.
	leastPause, restFactor, peersAtOnce = 20 * time.Millisecond, 4, 64
)

// Limit is a limit for each peer by itself.
type Limit struct {
	ID       uint32
	Subject  api.Subject
	Selector destination.Selector
	OnlyUser bool   // the administrator requests nothing of it
	User     uint32 // the user who owns it then
	// Request is what each peer gets. Stored is a node of the pool for it, without an id.
	Request limit.Limit
	Stored  enforce.NodeSpec
}

// Peer is the node of one peer.
type Peer struct {
	ID      uint32
	Of      uint32 // the limit for each peer that it is a part of
	Request limit.Limit
}

// Host is the program that has the limits. The caller of all methods but Update holds the lock of the limits.
type Host interface {
	// Update calls a function under the lock of the limits, unless no limit may be set any more.
	Update(change func() error) error
	// Limits yields the limits for each peer, but for those that are about to be lifted.
	Limits(yield func(Limit) bool)
	// Peers yields the nodes of peers.
	Peers(yield func(Peer) bool)
	// IsLimited reports whether the owner of a limit has a limit on a part of its traffic already.
	IsLimited(of uint32, part destination.Selector) bool
	// Add makes the node of one peer, and returns its id. It takes a node of the pool if id is not 0.
	Add(of uint32, peer destination.Selector, id uint32) (node uint32, err error)
	// Change gives a peer's node another limit. End lifts the node.
	Change(node uint32, is limit.Limit) error
	End(node uint32) error
	// FreeID returns an id that neither a limit nor the pool has. Count returns the number of limits.
	FreeID() uint32
	Count() int
	// CountsAs returns the user whose quota a user id uses.
	CountsAs(uid uint32) uint32
}

// Kernel is what the source needs from the kernel side; enforce.Kernel has it.
type Kernel interface {
	Peers(id uint32) ([]enforce.Peer, error)
	SetNode(enforce.NodeSpec) error
	RemoveNode(id uint32) error
}

// Options are what a source needs.
type Options struct {
	Log    *slog.Logger
	Kernel Kernel
	Host   Host
	// Figures returns what all nodes have sent and received, and their connections.
	Figures func() (observe.Sample, error)
	Now     func() time.Time
}

// Source makes limits on single peers, and ends them.
type Source struct {
	opts Options
	wake chan struct{} // new addresses, or a changed request for them
	pool map[uint32]enforce.NodeSpec
	used map[uint32]usage // by the peer's node
}

// usage is the last change of what a peer's node has sent and received.
type usage struct {
	volume uint64 // in bytes
	at     time.Time
}

// New returns a source without peers.
func New(o Options) *Source {
	return &Source{opts: o, wake: make(chan struct{}, 1), pool: make(map[uint32]enforce.NodeSpec), used: make(map[uint32]usage)}
}

// Wake has the source look at the addresses soon. It needs no lock.
func (s *Source) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Keep makes nodes for new addresses, and removes those of idle ones, until ctx ends.
func (s *Source) Keep(ctx context.Context, tick <-chan time.Time) {
	var failing failure.Lasting
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-s.wake:
		}
		began := time.Now()
		some, err := s.pass()
		pause := max(leastPause, restFactor*time.Since(began))
		failing.Note(s.opts.Log, "limits for each address were not looked after", err)
		if !some {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// pass looks at the addresses that limits for each of them have met. It reports whether there are such limits, or what
// is left of them.
func (s *Source) pass() (some bool, err error) {
	host, met := s.opts.Host, make(map[uint32][]enforce.Peer)
	_ = host.Update(func() error {
		some = len(s.pool) > 0
		host.Peers(func(Peer) bool {
			some = true
			return false
		})
		for of := range host.Limits {
			met[of.ID] = nil
		}
		return nil
	})
	if !some && len(met) == 0 {
		return false, nil
	}
	var errs []error
	for id := range met {
		list, err := s.opts.Kernel.Peers(id)
		if err != nil {
			errs = append(errs, err)
		}
		met[id] = list
	}
	now, err := s.opts.Figures()
	if err != nil {
		return true, errors.Join(append(errs, err)...)
	}
	return true, errors.Join(append(errs, host.Update(func() error { return s.update(met, now) }))...)
}

// update brings the nodes of peers, and the pool, to what the limits request and what was met.
func (s *Source) update(met map[uint32][]enforce.Peer, now observe.Sample) error {
	limits := make(map[uint32]Limit)
	for of := range s.opts.Host.Limits {
		limits[of.ID] = of
	}
	errs := []error{s.dropUnneeded(limits)}
	count, err := s.tend(limits, now)
	errs = append(errs, err)
	for id, list := range met {
		if of, ok := limits[id]; ok {
			errs = append(errs, s.meet(of, list, count[id]), s.fill(of, limits))
		}
	}
	return errors.Join(errs...)
}

// tend updates the present peers' nodes to the request, and ends unused ones. It returns the number of those that stay,
// by the limit.
func (s *Source) tend(limits map[uint32]Limit, now observe.Sample) (count map[uint32]int, err error) {
	host := s.opts.Host
	var errs []error
	count = make(map[uint32]int)
	used := make(map[uint32]usage)
	for _, p := range slices.Collect(host.Peers) {
		last, isKnown := s.used[p.ID]
		stats, isCounted := now.Nodes[p.ID]
		if volume := stats.Bytes + stats.Down.Bytes; !isCounted || volume != last.volume || now.Backlogs[p.ID].Sockets > 0 || !isKnown {
			last = usage{volume, s.opts.Now()}
		}
		of, isRequested := limits[p.Of]
		isEnded := false
		switch {
		case !isRequested || s.opts.Now().Sub(last.at) > idleTime:
			err := host.End(p.ID)
			isEnded = err == nil
			errs = append(errs, err)
		case p.Request != of.Request:
			errs = append(errs, host.Change(p.ID, of.Request))
		}
		if !isEnded {
			used[p.ID] = last
			count[p.Of]++
		}
	}
	s.used = used // without those that are gone
	return count, errors.Join(errs...)
}

// meet makes nodes for addresses without one. The limit has a number of them already.
func (s *Source) meet(of Limit, met []enforce.Peer, count int) error {
	added := 0
	done := make(map[netip.Prefix]bool)
	slices.SortFunc(met, func(a, b enforce.Peer) int { return cmp.Compare(b.Node, a.Node) }) // those with a node first
	var errs []error
	for _, p := range met {
		peer := of.Selector.Peer(p.Address)
		if done[peer.Prefixes[0]] || p.Address.IsUnspecified() {
			continue // the next pass lifts its preallocated node, if it has one
		}
		done[peer.Prefixes[0]] = true
		if count >= mostPeers {
			errs = append(errs, request.Full("as many addresses are met", mostPeers, "name a smaller prefix: netnice ls"))
			break
		}
		made, err := s.add(of, peer, p.Node)
		if err != nil {
			errs = append(errs, err)
		}
		if made {
			count++
			added++
		}
		if added == peersAtOnce {
			s.Wake() // others wait for the lock
			break
		}
	}
	return errors.Join(errs...)
}

// add makes the node of one address, unless it has one. If the kernel side has given the address a preallocated node,
// it uses that one.
func (s *Source) add(of Limit, peer destination.Selector, got uint32) (made bool, err error) {
	if s.opts.Host.IsLimited(of.ID, peer) {
		return false, s.drop(got)
	}
	if !s.Holds(got) {
		got = 0
	}
	node, err := s.opts.Host.Add(of.ID, peer, got)
	if err != nil {
		return false, err
	}
	delete(s.pool, node)
	s.used[node] = usage{at: s.opts.Now()}
	return true, nil
}
