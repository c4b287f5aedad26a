package daemon

import (
	"context"
	"fmt"
	"iter"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/failure"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/plan"
)

// commit is a transaction with one node that stays; old is nil for a new one. The caller holds d.mu.
func (d *Daemon) commit(old, next *node) (n *node, err error) {
	err = d.update(func(tx *transaction) error {
		n, err = tx.put(old, next)
		return err
	})
	return n, err
}

// settle brings a node to its next state, or lifts it, and publishes that. The caller holds d.mu.
func (d *Daemon) settle(n, next *node, whose string) error {
	before := *n
	err := d.update(func(tx *transaction) error {
		_, err := tx.alter(n, next)
		return err
	})
	if err == nil {
		d.tellSet(&before, next.ifAny(), whose)
	}
	return err
}

// drop is a transaction that lifts one node. The caller holds d.mu.
func (d *Daemon) drop(n *node) error {
	return d.update(func(tx *transaction) error { return tx.lift(n) })
}

// apply sets a node in the kernel to its desired state.
func (d *Daemon) apply(n *node) error {
	if n.res.Pending() {
		d.touch(n)
		return nil
	}
	return d.setNode(n, d.specOf(n))
}

func (d *Daemon) setNode(n *node, spec enforce.NodeSpec) error {
	d.touch(n)
	if err := d.kernel.SetNode(spec); err != nil {
		return fmt.Errorf("limit %s: %w", n.res.Subject, err)
	}
	n.applied, n.drift = true, enforce.NodeSpec{}
	return nil
}

func (d *Daemon) unapply(n *node) error {
	if !n.applied {
		return nil
	}
	if err := d.kernel.RemoveNode(n.id); err != nil {
		return fmt.Errorf("lift %s: %w", n.res.Subject, err)
	}
	n.applied = false
	return nil
}

// rebind moves a node to the cgroup that its unit runs in now.
func (d *Daemon) rebind(n *node, res identity.Resolved) error {
	return d.update(func(tx *transaction) error { return tx.move(n, res) })
}

// freeID returns an id that is not in use. It goes round, so that a released id is not used again soon.
func (d *Daemon) freeID() uint32 {
	for {
		id := d.nextID
		if d.nextID++; d.nextID >= enforce.FirstSocketNode {
			d.nextID = 1
		}
		if !d.used(id) && id != 0 && id < enforce.FirstSocketNode {
			return id
		}
	}
}

func (d *Daemon) used(id uint32) bool { return d.peers.Holds(id) || d.nodes.Get(id) != nil }

// startWatch watches the root process of a tree. Where that is impossible, the tick notices its end.
func (d *Daemon) startWatch(n *node) {
	if n.res.Kind != enforce.KindTree || n.res.Key == 0 {
		return
	}
	watch, err := d.resolver.Watch(int(n.res.Key), n.res.StartBoottimeNS, func() {
		select {
		case d.check <- struct{}{}:
		default: // a look is due already
		}
	})
	if err != nil {
		d.log.Debug("no pidfd", "err", err)
		return
	}
	n.watch = watch
}

// keepHouse reconciles with the kernel at every tick, and when a process has ended.
func (d *Daemon) keepHouse(ctx context.Context, tick <-chan time.Time) {
	pause, told := watchdogPause(), time.Now()
	var named <-chan time.Time // when to read names of new nodes' programs; nil = there are none
	var said unreachable
	var groupDue time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			d.keepReachable(&said)
			d.followNames(ctx)
			d.readSubordinates()
			d.watchAdminGroup(&groupDue)
			d.look(true)
			d.releaseQueues(time.Now())
			d.learnPrograms(0)
			d.cpuShares.Look(ctx)
			d.writeAgain()
			if pause != 0 && time.Since(told) >= pause-d.opts.Tick {
				d.tell(sdnotify.SdNotifyWatchdog)
				told = time.Now()
			}
		case <-d.check:
			d.look(false)
		case <-d.born:
			if named == nil {
				named = time.After(nameAfter)
			}
		case <-named:
			named = nil
			limited, shared := d.learnPrograms(youngFor), d.cpuShares.LearnNames(youngFor, nameAfter)
			if limited || shared {
				named = time.After(nameAfter)
			}
		}
	}
}

// keepArmed calls Maintain at every tick while there are nodes, and whenever the kernel side asks for it.
func (d *Daemon) keepArmed(ctx context.Context, tick <-chan time.Time) {
	events := d.kernel.Events()
	var failing failure.Lasting
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			if d.count() == 0 {
				continue
			}
		case _, open := <-events:
			if !open {
				events = nil
				continue
			}
			d.peers.Wake()
		}
		failing.Note(d.log, "connections were not looked after", d.kernel.Maintain())
	}
}

// followNames finds units and containers that restarted, and cgroups and devices that appeared. It asks systemd without
// the lock.
func (d *Daemon) followNames(ctx context.Context) {
	subjects := make(map[uint32]api.Subject)
	d.mu.Lock()
	for n := range d.nodes.All() {
		switch {
		case n.res.Kind == enforce.KindLink:
			subjects[n.id] = n.res.Subject
			continue
		case n.res.Kind != enforce.KindCgroup || !n.res.Named() && !n.res.Pending():
			continue
		}
		if !d.resolver.Stays(n.res) {
			subjects[n.id] = n.res.Subject
		}
	}
	d.mu.Unlock()
	for id, subject := range subjects {
		if subject.Kind == api.KindLink {
			gone := identity.LinkGone(subject) // this may read all of /proc
			d.mu.Lock()
			if n := d.nodes.Get(id); n != nil {
				n.nowhere = gone
			}
			d.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(ctx, d.opts.Tick)
		res, err := d.resolver.Resolve(ctx, subject)
		cancel()
		if err != nil || res.Pending() {
			continue // not running now; the limit waits
		}
		d.mu.Lock()
		if n := d.nodes.Get(id); n != nil && n.restarted(res) {
			d.once(n, d.rebind(n, res))
		}
		d.mu.Unlock()
	}
}

// look ends the nodes whose subject is gone. At the tick it also records the counters and compares the kernel with the
// desired state. Without nodes it costs nothing.
func (d *Daemon) look(tick bool) {
	if tick && (d.count() > 0 || d.observe.Heard()) {
		if err := d.observe.Tick(); err != nil && !d.down() {
			d.complain(err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return // the kernel side is closed
	}
	if d.nodes.Len() > 0 || d.isBehind {
		if tick {
			d.compare(d.destinations.AssignAgain)
			d.sweepScopes()
			d.endTimed()
		}
		d.endGone()
	}
	if tick {
		d.destinations.Retry()
	}
	d.file.SaveIfDue(tick)
}

// compare brings the nodes in the kernel to the plan: it sets those again that the kernel lost, and lifts those that it
// kept too long. The function assign tells the kernel which nodes hold for which destination, after some of these were
// set or are to go. The caller holds d.mu, or is the only one that knows the daemon yet.
func (d *Daemon) compare(assign func()) {
	specs, err := d.kernel.Nodes()
	if err != nil {
		d.complain(err)
		return
	}
	d.isBehind = false
	inForce := make(map[uint32]enforce.NodeSpec, len(specs))
	for _, spec := range specs {
		inForce[spec.ID] = spec
	}
	d.peers.Lost(func(id uint32) bool {
		_, ok := inForce[id]
		return ok
	})
	d.reservations.Follow()
	stays := func(s enforce.NodeSpec) bool { return d.used(s.ID) || !desired.KnowsKind(s.Kind) }
	var refused []*node
	hasRemoved := false
	for _, step := range plan.Difference(inForce, d.unsettled(inForce), stays) {
		switch n := d.nodes.Get(step.Node.ID); {
		case step.Action == plan.Assign:
			assign()
		case step.Action == plan.Remove && (!stays(step.Node) || n != nil && plan.Clash(step.Node, d.specOf(n))):
			d.removeUnwanted(step.Node.ID)
			hasRemoved = true
		case step.Action == plan.Set && n != nil:
			if !d.carryOut(step, n, inForce) {
				refused = append(refused, n)
			}
		}
	}
	if hasRemoved {
		d.setRefused(refused, assign)
	}
}

// carryOut sets a node, and reports whether the kernel has taken it. The assignment before it may have changed nodes of
// rules, so the last step of a node sets it to its present state. The caller holds d.mu, or is the only one that knows the
// daemon yet.
func (d *Daemon) carryOut(step plan.Step, n *node, inForce map[uint32]enforce.NodeSpec) bool {
	spec := step.Node
	if !step.IsInterim {
		spec = d.specOf(n)
	}
	err := d.setNode(n, spec)
	d.once(n, err)
	if have, ok := inForce[n.id]; ok && err == nil && !step.IsInterim && !plan.Clash(have, spec) { // it was this node
		n.drift = have
	}
	return err == nil
}

// setRefused sets nodes again that the kernel has refused before others had gone. The caller holds d.mu, or is the only
// one that knows the daemon yet.
func (d *Daemon) setRefused(list []*node, assign func()) {
	isPart := false
	for _, n := range list {
		if d.nodes.Get(n.id) == n {
			d.once(n, d.setNode(n, d.specOf(n)))
			isPart = isPart || n.res.Kind == enforce.KindDestination
		}
	}
	if isPart {
		assign()
	}
}

// unsettled iterates over the nodes as the kernel should hold them, without those that the kernel reports as it did after
// they were set last. The caller holds d.mu, or is the only one that knows the daemon yet.
func (d *Daemon) unsettled(inForce map[uint32]enforce.NodeSpec) iter.Seq[enforce.NodeSpec] {
	return func(yield func(enforce.NodeSpec) bool) {
		for n := range d.nodes.All() {
			have, ok := inForce[n.id]
			if !n.res.Pending() && (!ok || have != n.drift) && !yield(d.specOf(n)) {
				return
			}
		}
	}
}

// removeUnwanted removes a node from the kernel that the daemon does not know.
func (d *Daemon) removeUnwanted(id uint32) {
	d.log.Warn("a node that nobody asked for is lifted", "node", id)
	if err := d.kernel.RemoveNode(id); err != nil {
		d.isBehind = true
		d.complain(err)
	}
}

// once logs an error about a node, unless it is the same as the last one.
func (d *Daemon) once(n *node, err error) {
	if err == nil {
		if n.lastErr != "" {
			n.lastErr = ""
			d.touch(n)
		}
		return
	}
	if text := err.Error(); text != n.lastErr {
		n.lastErr = text
		d.touch(n)
		d.tellOf(n, api.EventLimitFailed, text)
		d.log.Warn("a limit does not hold", "subject", n.res.Subject.String(), "node", n.id, "err", err)
	}
}
