package daemon

import (
	"errors"
	"fmt"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/plan"
)

// A limit for each peer has preallocated nodes, ready to apply: the first byte to a new address is limited, also while
// no daemon runs. These nodes are no limits yet: no caller sees them, no file has them, and the next daemon takes them
// from the kernel.

const (
	// stockOfAdmin bounds the preallocated nodes of one limit of the administrator's, stockOfUser those of a user's.
	// stockPerUser bounds those of all of a user's limits, mostStock those of all limits.
	stockOfAdmin, stockOfUser = enforce.MostStored, enforce.MostStored / 4
	stockPerUser, mostStock   = 64, 2048
	// stockAtOnce bounds the nodes that one look adds.
	stockAtOnce = 16
)

// stockSize returns the number of preallocated nodes that a limit may have beside those of other limits.
func (d *Daemon) stockSize(of *node) int {
	room, most := mostStock, stockOfAdmin
	if of.IsOnlyUsers() {
		room, most = min(room, stockPerUser), stockOfUser
	}
	for _, spec := range d.stock {
		n := d.nodes.Get(spec.Store)
		if spec.Store != of.id && (!of.IsOnlyUsers() || n != nil && n.IsOnlyUsers() && d.countsAs(n.userUID) == d.countsAs(of.userUID)) {
			room--
		}
	}
	return min(most, max(room, 0))
}

// stockUp preallocates nodes for a limit up to the allowed number, at most stockAtOnce at a time, and gives all of them
// its present settings. The caller holds d.mu.
func (d *Daemon) stockUp(of *node) error {
	want := plan.Stored(of.planned(), &of.Wanted, d.machine())
	have := 0
	for id, spec := range d.stock {
		if spec.Store != of.id {
			continue
		}
		have++
		if want.ID = id; spec == want {
			continue
		}
		if err := d.kernel.SetNode(want); err != nil {
			return fmt.Errorf("change what is in store for %s: %w", of.res.Subject, err)
		}
		d.stock[id] = want
	}
	size := d.stockSize(of)
	for n := 0; have < size; n++ {
		if n == stockAtOnce {
			d.wakeEach() // others wait for the lock
			break
		}
		if d.nodes.Len()+len(d.stock) >= auth.MaxNodes {
			break
		}
		want.ID = d.freeID()
		if err := d.kernel.SetNode(want); err != nil {
			return fmt.Errorf("put a node in store for %s: %w", of.res.Subject, err)
		}
		d.stock[want.ID] = want
		have++
	}
	return nil
}

// sellOff lifts the preallocated nodes of limits that have gone. The caller holds d.mu.
func (d *Daemon) sellOff() error {
	var errs []error
	for id, spec := range d.stock {
		if of := d.nodes.Get(spec.Store); of == nil || !of.isEach() || of.to.leaving {
			errs = append(errs, d.unstock(id))
		}
	}
	return errors.Join(errs...)
}

// unstock lifts a node, if it is a preallocated one.
func (d *Daemon) unstock(id uint32) error {
	if _, ok := d.stock[id]; !ok {
		return nil
	}
	if err := d.kernel.RemoveNode(id); err != nil {
		return fmt.Errorf("lift node %d, which is in store: %w", id, err)
	}
	delete(d.stock, id)
	return nil
}
