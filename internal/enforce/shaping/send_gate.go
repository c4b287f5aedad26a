package shaping

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// While a node has a gate, the next packet goes round until it may leave (bpf/send_gate.h). The node's class has the
// rate for that, which is far above the node's limit. The clock still enforces the limit, by drops. The
// user of a gate must therefore allow no more than the limit, and close first makes the class as slow as the limit.

const (
	// gateSoonest and gateLatest bound the interval at which a gate checks whether the next packet may leave.
	gateSoonest, gateLatest = 250 * time.Microsecond, 10 * time.Millisecond
	leastGatePacket         = 128 // bytes: the class gets no lower rate for smaller packets
)

// gate is the credit gate of a node in one per-namespace queue.
type gate struct {
	k      *Kernel
	id     uint32
	at     *sendPlace
	every  time.Duration
	moved  <-chan struct{}
	forget func()
	once   sync.Once
}

var _ enforce.Gate = (*gate)(nil)

// Gate implements enforce.Paths.
func (k *Kernel) Gate(id uint32, every time.Duration) (enforce.Gate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, o := k.whereSent(id)
	if o == nil || o.lanes == 0 || o.gate != nil {
		return nil, fmt.Errorf("what node %d sends does not wait in one place: %w", id, enforce.ErrNotSupported)
	}
	g := &gate{k: k, id: id, at: p, every: min(max(every, gateSoonest), gateLatest)}
	if err := p.setRound(id, o); err != nil {
		return nil, err
	}
	// Per-program classes that an older release made do not have the priority behind the gate's class.
	if err := p.setLanes(id, o, false); err != nil {
		return nil, err
	}
	o.gate = g
	g.moved, g.forget = k.pacing.FollowGate(p.key(id))
	left, err := g.Left()
	if err == nil {
		err = g.allow(left, ebpf.UpdateAny)
	}
	if err == nil {
		err = p.retime(id, o)
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// whereSent returns the only per-namespace queue that a node uses now, nil if it uses none or several.
func (k *Kernel) whereSent(id uint32) (at *sendPlace, o *outlet) {
	if k.send == nil {
		return nil, nil
	}
	for _, p := range k.send.places {
		if in := p.outlets[id]; in != nil && in.busy() {
			if at != nil {
				return nil, nil
			}
			at, o = p, in
		}
	}
	return at, o
}

func (o *outlet) busy() bool {
	for i := range o.part {
		if !o.part[i].idle() {
			return true
		}
	}
	return false
}

// setRound makes the class in which a packet goes round.
func (p *sendPlace) setRound(id uint32, o *outlet) error {
	return p.Within(func() error { return p.pair.SetBelow(id, o.lanes, o.quantum, gatePriority, sendQueue) })
}

// classAt returns a node's class at a rate in IP bytes per second. With a gate, the class has the gate's rate.
func (o *outlet) classAt(rate uint64, n *outgoing) class {
	c := sendClass(rate, o.mix.on(n.spec.Line))
	if o.gate == nil {
		return c
	}
	packet := max(o.mix.packet, leastGatePacket) + linkHeader
	c.rate = max(uint64(packet/o.gate.every.Seconds()), c.rate*3/2)
	c.bufferTicks = 1 // one packet at a time: a second one would overtake the first
	return c
}

// retime sets the rate of a node's class after its gate was made or closed.
func (p *sendPlace) retime(id uint32, o *outlet) error {
	n := p.s.nodes[id]
	if n == nil {
		return nil
	}
	c := o.classAt(max(o.rate, 1), n)
	if err := p.pair.SetRate(id, c.htb()); err != nil {
		return err
	}
	o.class.rate, o.class.bufferTicks = c.rate, c.bufferTicks
	return nil
}

// Left implements enforce.Gate.
func (g *gate) Left() (uint64, error) {
	var f bpf.Outflow
	if err := g.at.s.obj.Outflows.Lookup(g.at.key(g.id), &f); err != nil {
		return 0, fmt.Errorf("read what has left by the gate of node %d: %w", g.id, err)
	}
	return f.Bytes, nil
}

// Allow implements enforce.Gate.
func (g *gate) Allow(bytes uint64) error { return g.allow(bytes, ebpf.UpdateExist) }

// allow implements Allow. With UpdateExist it fails if the gate has gone with its queue.
func (g *gate) allow(bytes uint64, how ebpf.MapUpdateFlags) error {
	to := bpf.Gate{AllowedBytes: bytes, UntilNs: bpf.NowNS() + uint64(enforce.GateTime)}
	if err := g.at.s.obj.Gates.Update(g.at.key(g.id), &to, how); err != nil {
		return fmt.Errorf("let packets by the gate of node %d: %w", g.id, err)
	}
	return nil
}

// Moved implements enforce.Gate.
func (g *gate) Moved() <-chan struct{} { return g.moved }

// Close implements enforce.Gate.
func (g *gate) Close() (err error) {
	g.once.Do(func() {
		g.k.mu.Lock()
		defer g.k.mu.Unlock()
		err = g.close()
	})
	return err
}

// close first makes the class as slow as the limit, so that no packet gets ahead of the clock.
func (g *gate) close() error {
	g.forget()
	o := g.at.outlets[g.id]
	if o == nil || o.gate != g {
		return nil // the queue or the limit has gone, and the gate's entry with it
	}
	o.gate = nil
	if g.k.send != g.at.s {
		return nil
	}
	return errors.Join(g.at.retime(g.id, o), g.at.openGate(g.id))
}

// openGate opens a node's gate for good, if it has one.
func (p *sendPlace) openGate(id uint32) error {
	if err := gone(p.s.obj.Gates.Delete(p.key(id))); err != nil {
		return fmt.Errorf("open the gate of node %d: %w", id, err)
	}
	return nil
}
