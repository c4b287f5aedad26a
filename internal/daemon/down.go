package daemon

import (
	"context"
	"errors"
	"fmt"
)

// bringDown lifts everything and removes the stored state. If only that removal fails, all is lifted nevertheless, and
// the daemon leaves. If lifting fails, bringDown resumes the activities that it has ended before.
func (d *Daemon) bringDown() error {
	ctx := context.Background()
	lifted, err := d.cpuShares.Lift(ctx, leaving())
	if err == nil {
		d.adaptation.Halt(leaving())
		err = d.liftLimits()
	}
	if err != nil && !d.down() {
		d.adaptation.Resume()
		return errors.Join(err, d.cpuShares.Resume(ctx, lifted))
	}
	d.adaptation.Forget()
	return err
}

// liftLimits lifts all limits and removes their stored state.
func (d *Daemon) liftLimits() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return nil
	}
	if err := d.kernel.Down(); err != nil {
		return fmt.Errorf("take the kernel side down: %w", err)
	}
	d.isDown = true
	close(d.downc)
	for n := range d.nodes.All() {
		n.watch.Stop()
		d.leaveScope(n)
		d.forgetNode(n.id)
	}
	d.destinations.DropUnusedLists()
	d.sweepScopes()
	return d.forget(limitFiles...)
}
