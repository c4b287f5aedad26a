package daemon

import (
	"context"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/observe"
)

// Nodes implements apiserver.Backend.
func (d *Daemon) Nodes(_ context.Context, by auth.Actor) (api.NodeList, error) {
	return d.observe.Nodes(by)
}

// NodesFor implements apiserver.Backend.
func (d *Daemon) NodesFor(ctx context.Context, by auth.Actor, s api.Subject) (api.NodeList, error) {
	return d.observe.NodesFor(ctx, by, s)
}

// Why implements apiserver.Backend.
func (d *Daemon) Why(ctx context.Context, by auth.Actor, pid, fd int, over time.Duration) (api.Why, error) {
	return d.observe.Why(ctx, by, pid, fd, over)
}

// Events implements apiserver.Backend.
func (d *Daemon) Events(ctx context.Context, by auth.Actor, cut func(), send func([]api.Event) error) error {
	hello := api.Event{Type: api.EventHello, Release: d.opts.Release, PID: d.pid, Adopted: d.atStart.adopted, SetAgain: d.atStart.setAgain}
	return d.observe.Events(ctx, by, cut, hello, send)
}

// lookAt reads the counters and sockets of an existing node.
func (d *Daemon) lookAt(n *node, dryRun bool) observe.Sample {
	if !dryRun {
		if now, err := d.observe.FiguresOf(n.id); err == nil { // without a reading the limit holds all the same
			return now
		}
	}
	return observe.Sample{At: time.Now()}
}

// show renders a node for an actor as it is, or as it would be. The caller holds d.mu.
func (d *Daemon) show(by auth.Actor, n *node, now observe.Sample) *api.Node {
	return d.observe.Show(d.draft(), by, n.record(), now)
}

// publishEvent publishes an event that concerns one or two users, if anybody listens.
func (d *Daemon) publishEvent(uids [2]uint32, event func() api.Event) {
	if d.observe.Heard() {
		d.observe.Tell(observe.UsersOnly(uids), event())
	}
}

// tellOf publishes an event about a node, with a message or "". The caller holds d.mu.
func (d *Daemon) tellOf(n *node, t api.EventType, message string) {
	if d.observe.Heard() {
		d.publish()
		d.observe.TellOf(n.record(), t, message)
	}
}

// tellSet publishes the change of a node by a command or a rule: before is nil for a new node, now is nil if it was
// lifted. The caller holds d.mu.
func (d *Daemon) tellSet(before, now *node, by string) {
	if !d.observe.Heard() {
		return
	}
	d.publish()
	var was, is *observe.Node
	if before != nil {
		was = before.record()
	}
	if now != nil {
		is = now.record()
	}
	d.observe.TellChange(was, is, by)
}
