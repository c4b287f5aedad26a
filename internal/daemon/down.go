package daemon

import (
	"context"
	"fmt"
)

// bringDown lifts everything and removes what was stored. If only that cannot be removed all is
// lifted nevertheless, and the daemon leaves.
func (d *Daemon) bringDown() (err error) {
	if err := d.liftPowers(context.Background()); err != nil {
		return err
	}
	defer func() { // without d.mu, which is taken after that of the powers
		if err != nil && !d.down() {
			d.admitPowers()
		}
	}()
	d.forgetAdapts()
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
	for id, n := range d.nodes {
		n.watch.stop()
		d.leaveScope(n)
		delete(d.nodes, id)
	}
	d.dropLists()
	d.sweepScopes()
	return d.forget(limitFiles...)
}
