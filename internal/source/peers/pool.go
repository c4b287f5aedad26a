package peers

import (
	"errors"
	"fmt"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// A limit for each peer has preallocated nodes, ready to apply: the first byte to a new address is limited, also while
// no daemon runs. These nodes are no limits yet: no caller sees them, no file has them, and the next daemon takes them
// from the kernel.

const (
	// poolOfAdmin bounds the preallocated nodes of one limit of the administrator's, poolOfUser those of a user's.
	// poolPerUser bounds those of all of a user's limits, mostPooled those of all limits.
	poolOfAdmin, poolOfUser = enforce.MostStored, enforce.MostStored / 4
	poolPerUser, mostPooled = 64, 2048
	// pooledAtOnce bounds the nodes that one pass adds for a limit.
	pooledAtOnce = 16
)

// Adopt takes over a preallocated node of the kernel's. The caller of this method, Holds and Lost has the lock of the
// limits.
func (s *Source) Adopt(spec enforce.NodeSpec) { s.pool[spec.ID] = spec }

// Holds reports whether an id is that of a preallocated node.
func (s *Source) Holds(id uint32) bool {
	_, ok := s.pool[id]
	return ok
}

// Lost forgets the preallocated nodes that the kernel does not have any more. Others replace them.
func (s *Source) Lost(isInForce func(id uint32) bool) {
	for id := range s.pool {
		if !isInForce(id) {
			delete(s.pool, id)
		}
	}
}

// poolSize returns the number of preallocated nodes that a limit may have beside those of other limits.
func (s *Source) poolSize(of Limit, limits map[uint32]Limit) int {
	room, most := mostPooled, poolOfAdmin
	if of.OnlyUser {
		room, most = min(room, poolPerUser), poolOfUser
	}
	host := s.opts.Host
	for _, spec := range s.pool {
		other := limits[spec.Store]
		if spec.Store != of.ID && (!of.OnlyUser || other.OnlyUser && host.CountsAs(other.User) == host.CountsAs(of.User)) {
			room--
		}
	}
	return min(most, max(room, 0))
}

// fill preallocates nodes for a limit up to the allowed number, at most pooledAtOnce at a time, and gives all of them its
// present settings.
func (s *Source) fill(of Limit, limits map[uint32]Limit) error {
	host, want := s.opts.Host, of.Stored
	have := 0
	for id, spec := range s.pool {
		if spec.Store != of.ID {
			continue
		}
		have++
		if want.ID = id; spec == want {
			continue
		}
		if err := s.opts.Kernel.SetNode(want); err != nil {
			return fmt.Errorf("change what is in store for %s: %w", of.Subject, err)
		}
		s.pool[id] = want
	}
	size := s.poolSize(of, limits)
	for n := 0; have < size; n++ {
		if n == pooledAtOnce {
			s.Wake() // others wait for the lock
			break
		}
		if host.Count()+len(s.pool) >= auth.MaxNodes {
			break
		}
		want.ID = host.FreeID()
		if err := s.opts.Kernel.SetNode(want); err != nil {
			return fmt.Errorf("put a node in store for %s: %w", of.Subject, err)
		}
		s.pool[want.ID] = want
		have++
	}
	return nil
}

// dropUnneeded lifts the preallocated nodes of limits that have gone.
func (s *Source) dropUnneeded(limits map[uint32]Limit) error {
	var errs []error
	for id, spec := range s.pool {
		if _, ok := limits[spec.Store]; !ok {
			errs = append(errs, s.drop(id))
		}
	}
	return errors.Join(errs...)
}

// drop lifts a node, if it is a preallocated one.
func (s *Source) drop(id uint32) error {
	if !s.Holds(id) {
		return nil
	}
	if err := s.opts.Kernel.RemoveNode(id); err != nil {
		return fmt.Errorf("lift node %d, which is in store: %w", id, err)
	}
	delete(s.pool, id)
	return nil
}
