package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
)

// transaction is a change of several nodes, all or none: in the table and in the kernel, then in the file. It is rolled
// back at the first failure, and after a dry run. The caller holds d.mu from its beginning to its end.
type transaction struct {
	request.Transaction
	d       *Daemon
	changed []*node // nodes that the state file has to say something else of
	lasting bool    // one of the changes outlives this boot
	// assigned says that the kernel was told which nodes hold for which destination.
	assigned bool
}

// update runs the steps of a transaction. A failure to write the file is no error (unwritten.go). The caller holds d.mu.
func (d *Daemon) update(steps func(*transaction) error) error {
	tx := &transaction{d: d}
	if err := steps(tx); err != nil {
		_ = tx.RollBack(err) // it logs what is left, because no caller waits for an answer
		return err
	}
	tx.Commit()
	return nil
}

// Commit implements request.Undoable.
func (tx *transaction) Commit() {
	defer tx.d.observe.Outdate()
	tx.Finish(func() {
		changes := make([]desired.Change, 0, len(tx.changed))
		for _, n := range tx.changed {
			if tx.d.nodes.Get(n.id) == n {
				changes = append(changes, n.change())
			} else {
				changes = append(changes, desired.Change{Gone: n.id})
			}
		}
		tx.d.writeChange(tx.lasting, changes...)
	})
}

// RollBack implements request.Undoable. It also logs what the kernel did not take back: the next tick sets such nodes
// again.
func (tx *transaction) RollBack(cause error) error {
	if tx.IsEmpty() {
		return cause
	}
	defer tx.d.observe.Outdate()
	left := tx.Undo()
	if tx.assigned {
		tx.d.destinations.Outdate()
		if err := tx.d.destinations.Assign(); err != nil {
			left = append(left, err)
		}
		tx.d.file.Outdate() // the nodes of rules may have been written meanwhile, with what is undone
	}
	if len(left) > 0 {
		tx.d.isBehind = true
		tx.d.complain(fmt.Errorf("not all of a refused change was undone: %w", errors.Join(left...)))
	}
	return request.NotUndone(cause, left...)
}

// changing notes a node before it is changed in place, for what neither the kernel nor the table's keys depend on.
func (tx *transaction) changing(n *node) {
	before := *n
	tx.d.touch(n)
	tx.OnFailure(func() error {
		*n = before
		tx.d.touch(n)
		return nil
	})
}

// alter brings a node to next; old is nil for a new one. It lifts the node if nobody requests anything of it any more.
func (tx *transaction) alter(old, next *node) (*node, error) {
	if next.empty() {
		return old, tx.end(old)
	}
	return tx.put(old, next)
}

// put is alter for a node that stays.
func (tx *transaction) put(old, next *node) (*node, error) {
	d := tx.d
	if old == nil {
		n := *next
		if n.id == 0 {
			n.id = d.freeID()
		}
		n.countsFrom = n.since
		if err := d.apply(&n); err != nil {
			return nil, err
		}
		d.keepNode(&n)
		tx.OnFailure(func() error {
			d.forgetNode(n.id)
			return d.unapply(&n)
		})
		tx.Then(func() {
			d.hadNodes.Store(true)
			d.startWatch(&n)
			if pid, _ := n.rootProcess(); pid != 0 {
				d.programDue()
			}
		})
		tx.written(&n)
		tx.followedBy(&node{}, &n)
		return &n, nil
	}
	before, inForce := *old, false
	*old = *next
	d.nodes.Put(old)
	tx.OnFailure(func() error {
		applied := old.applied
		*old = before
		d.nodes.Put(old)
		if d.touch(old); !inForce {
			return nil // the kernel has refused it
		}
		if before.applied {
			return d.apply(old)
		}
		old.applied = applied
		return d.unapply(old)
	})
	if err := d.apply(old); err != nil {
		return nil, err
	}
	inForce = true
	tx.written(old)
	tx.followedBy(&before, old)
	return old, nil
}

// written has the state file say of a node what is so at the end of the transaction.
func (tx *transaction) written(n *node) {
	if tx.lasting = tx.lasting || n.lasting(); !slices.Contains(tx.changed, n) {
		tx.changed = append(tx.changed, n)
	}
}

// end lifts a node that no owner requests any more, with what belongs to it.
func (tx *transaction) end(n *node) error {
	switch {
	case n.to != nil:
		return tx.d.destinations.Lift(tx, n.id)
	case n.res.Subject.Kind == api.KindGroup:
		if err := tx.d.groups.ReleaseMembers(tx, n.res.Subject.ID); err != nil {
			return err
		}
	}
	return tx.lift(n)
}

// lift lifts a single node.
func (tx *transaction) lift(n *node) error {
	d := tx.d
	before := *n
	if err := d.unapply(n); err != nil {
		return err
	}
	d.forgetNode(n.id)
	moved := d.outerGone(n)
	tx.OnFailure(func() error {
		for _, inside := range moved {
			inside.Ruled.Outer = n.id
		}
		d.keepNode(n)
		return d.reapply(n, before.applied)
	})
	tx.written(n)
	tx.Then(func() {
		n.watch.Stop()
		d.leaveScope(n)
	})
	tx.followedBy(&before, &node{res: n.res})
	if n.destined() {
		tx.Then(d.destinations.Follow)
	}
	return nil
}

// followedBy has what depends on a node brought up to date at the end: reservations on a link, and those that a user
// made by a grant.
func (tx *transaction) followedBy(before, now *node) {
	if now.res.Kind == enforce.KindLink {
		tx.Then(tx.d.reservations.Follow)
	}
	had, has := before.Requested[enforce.OwnerAdmin].Grant, now.Requested[enforce.OwnerAdmin].Grant
	if had != has {
		tx.Then(func() { tx.d.reservations.FollowGrant(uint32(now.res.Key), cmp.Or(had.Link, has.Link)) })
	}
}

// reapply sets a node in the kernel again, if the kernel had it.
func (d *Daemon) reapply(n *node, applied bool) error {
	if d.touch(n); !applied {
		return nil
	}
	return d.apply(n)
}

// move moves a node to the cgroup that its unit runs in now, or to the new device of a link.
func (tx *transaction) move(n *node, res identity.Resolved) error {
	d := tx.d
	for _, other := range d.nodes.Same(res) {
		if other != n && !other.res.Pending() {
			return fmt.Errorf("%s is by now the same as %s, whose limit holds", n.res.Subject, other.res.Subject)
		}
	}
	before := *n
	if err := d.unapply(n); err != nil {
		return err
	}
	n.res = res
	d.nodes.Put(n)
	tx.OnFailure(func() error {
		err := d.unapply(n)
		n.res = before.res
		d.nodes.Put(n)
		return errors.Join(err, d.reapply(n, before.applied))
	})
	tx.written(n)
	return d.apply(n)
}
