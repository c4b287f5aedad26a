package shaping

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// A node has a class in each namespace in which it sends, and is due one rate. Who
// wants less than the others get what he leaves: each class has the same rate, at
// which all that they send together is what is due.

const (
	// partTime is over how long what a class sends is averaged, or so many packets.
	partTime    = 300 * time.Millisecond
	partPackets = 6
	// wantsMore is the part of its rate that a class which wants more sends.
	wantsMore = 0.85
)

// part is what was seen of a class: how much it sends of what it may.
type part struct {
	at         time.Time
	came, left uint64
	sent, may  float64 // averages, bytes/s
	quiet      int     // looks since something came
}

// see counts what left the class since the last look, at which it got a rate.
func (p *part) see(f bpf.Outflow, rate uint64, now time.Time) {
	left := f.Bytes - f.AsideBytes
	span := now.Sub(p.at)
	if p.came == f.CameBytes {
		p.quiet++
	} else {
		p.quiet = 0
	}
	switch {
	case p.at.IsZero():
	case p.quiet > shareQuiet: // it begins anew
		p.sent, p.may = 0, 0
	case span > 0:
		over := max(partTime.Seconds(), partPackets*usualPacket/float64(rate))
		weight := min(span.Seconds()/over, 1)
		p.sent += (float64(left-p.left)/span.Seconds() - p.sent) * weight
		p.may += (float64(rate) - p.may) * weight
	}
	p.at, p.came, p.left = now, f.CameBytes, left
}

func (p *part) wantsMore() bool { return p.may > 0 && p.sent >= wantsMore*p.may }

// divide is the rate of each class at which they send together what is due.
func divide(due float64, parts []*part) float64 {
	rest, hungry := due, 0
	for _, p := range parts {
		if p.wantsMore() {
			hungry++
		} else {
			rest -= p.sent
		}
	}
	if hungry == 0 || len(parts) == 1 {
		return due
	}
	return max(rest, due/float64(len(parts))) / float64(hungry)
}

// adapt looks once at every node, in the namespaces in which something was sent of
// late.
func (s *sender) adapt() error {
	var errs []error
	var busy []*sendPlace
	now := monotonicNS()
	for _, p := range s.places {
		idle, err := p.idle(now)
		errs = append(errs, err)
		// what comes to an end is looked at, too
		if idle < 2*shareQuiet*shareLook {
			busy = append(busy, p)
		}
	}
	if len(busy) == 0 {
		return errors.Join(errs...)
	}
	for id, n := range s.nodes {
		errs = append(errs, s.adaptNode(id, n, busy))
	}
	return errors.Join(errs...)
}

func (s *sender) adaptNode(id uint32, n *outgoing, busy []*sendPlace) error {
	now := time.Now()
	var came uint64
	var parts []*part
	seen := map[*outlet]bpf.Outflow{}
	for _, p := range busy {
		o := p.outlets[id]
		if o == nil {
			continue
		}
		var f bpf.Outflow
		if err := s.obj.Outflows.Lookup(p.key(id), &f); err != nil {
			return fmt.Errorf("read what node %d sent: %w", id, err)
		}
		came += f.CameBytes
		o.part.see(f, n.each, now)
		parts, seen[o] = append(parts, &o.part), f
	}
	if !n.share.came(came) {
		return nil
	}
	limit, direction := upCeiling(n.spec), bpf.DirectionUp
	if limit < directionCeiling(n.spec, enforce.Up) || directionCeiling(n.spec, enforce.Up) == 0 {
		direction = bpf.DirectionTotal
	}
	due, known, err := n.share.look(s.base, bpf.ClassKey{Node: id, Direction: direction, Child: bpf.ChildDatagrams}, limit)
	if err != nil || !known {
		return err
	}
	n.each = max(uint64(divide(float64(due), parts)), 1)
	var errs []error
	for _, p := range busy {
		if o := p.outlets[id]; o != nil {
			errs = append(errs, p.adapt(id, o, n.each, seen[o], now))
		}
	}
	return errors.Join(errs...)
}

// adapt sets a class's rate, unless it has it nearly.
func (p *sendPlace) adapt(id uint32, o *outlet, rate uint64, f bpf.Outflow, now time.Time) error {
	o.mix.update(bpf.Inflow{Bytes: f.Bytes, LinkBytes: f.LinkBytes, AsideBytes: f.AsideBytes}, now)
	c := sendClass(rate, o.mix.share)
	c.queueBytes = 0 // as it is
	if off := math.Abs(float64(c.rate)-float64(o.class.rate)) / float64(o.class.rate); off < 0.002 {
		return nil
	}
	if err := p.setClass(id, c); err != nil {
		return err
	}
	o.class.rate, o.class.bufferTicks = c.rate, c.bufferTicks
	return nil
}
