package shaping

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/due"
)

// A node has a class in each network namespace in which it sends, and per-program classes below it. The node's clock
// knows what each program is due. The class gets the sum of what its waiting programs are due as its rate. A program
// may send in several namespaces. Where it wants less than in the others, it leaves them the rest.

// partTime is the time over which the rate of a per-program class is averaged.
const partTime = 300 * time.Millisecond

// part is what the samples show of one per-program class.
type part struct {
	child      uint64
	class      uint64 // the one that is charged: child, or a node around it
	at         time.Time
	came, left uint64
	waiting    int64   // bytes in the queue
	lost       uint64  // bytes that came and never left the queue, or never got into it: they only seem to wait
	sent       float64 // average rate, bytes/s
	waits      bool    // it has a backlog: more than it may send
	waited     int     // successive samples with a backlog
	wants      float64 // bytes/s until the next sample: its backlog, and twice the bytes since the last one
	quiet      int     // samples since something came
	weight     uint32
	byRate     bool // the weight follows the rate that is due, since a child has a guarantee
}

// see takes the counters of a per-program class at a sample. perByte is how much an IP byte counts: more than 1 on a
// line that carries more than IP bytes.
func (p *part) see(l bpf.Lane, perByte float64, now time.Time, nowNS uint64) {
	if p.child != l.Child { // the class belongs to another child now
		*p = part{child: l.Child}
	}
	p.class = l.Class
	span := now.Sub(p.at)
	p.waiting = max(int64(l.CameBytes-l.LeftBytes), 0)
	p.lost = min(p.lost, uint64(p.waiting))
	p.waiting -= int64(p.lost)
	p.wants = math.Inf(1)
	if !p.at.IsZero() && span > 0 {
		p.wants = perByte * (2*float64(l.CameBytes-p.came)/span.Seconds() + float64(p.waiting)/due.Look.Seconds())
	}
	if p.came == l.CameBytes {
		p.quiet++
	} else {
		p.quiet = 0
	}
	switch {
	case p.at.IsZero():
	case p.quiet > shareQuiet: // the average starts again
		p.sent = 0
	case span > 0:
		weight := min(span.Seconds()/partTime.Seconds(), 1)
		p.sent += (perByte*float64(l.LeftBytes-p.left)/span.Seconds() - p.sent) * weight
	}
	p.at, p.came, p.left = now, l.CameBytes, l.LeftBytes
	p.waits = p.waiting > 0 && int64(nowNS-l.UsedNs) < int64(laneEmpty)
	if p.waits {
		p.waited++
	} else {
		p.waited = 0
	}
}

// idle reports whether the class needs no attention: nothing came recently, and it has no backlog.
func (p *part) idle() bool { return p.child == 0 || p.quiet > shareQuiet && !p.waits }

// namespaceShare returns the rate of each class with a backlog, where several classes together send what is due to one
// program: one in each network namespace. Classes without a backlog need no more than they send. Decision 8 says in which
// case that is another division than pacing's.
func namespaceShare(whole float64, parts []*part) float64 {
	rest, hungry := whole, 0
	for _, p := range parts {
		if p.waits {
			hungry++
		} else {
			rest -= p.sent
		}
	}
	if hungry == 0 || len(parts) == 1 {
		return whole
	}
	return max(rest, whole/float64(len(parts))) / float64(hungry)
}

// adapt samples every node once, in the network namespaces in which something was sent recently.
func (s *sender) adapt() error {
	var errs []error
	var busy []*sendPlace
	now := bpf.NowNS()
	for _, p := range s.places {
		idle, err := p.idle(now)
		errs = append(errs, err)
		// Twice the time that makes a class idle: the samples also show that sending has ended.
		if idle < 2*shareQuiet*due.Look {
			busy = append(busy, p)
		}
	}
	for _, p := range busy {
		p.standingsOnce = sync.OnceValues(p.pair.Standings) // one request lists all classes, for however many nodes
	}
	tooLong := false
	if len(busy) > 0 {
		for id, n := range s.nodes {
			errs = append(errs, s.adaptNode(id, n, busy))
			tooLong = tooLong || n.waitsLong(id, busy)
		}
	}
	errs = append(errs, s.boundBacklogs())
	return errors.Join(append(errs, s.keepBuffers(tooLong))...)
}

// waitsLong reports whether packets wait longer than the send buffers should make them.
func (n *outgoing) waitsLong(id uint32, busy []*sendPlace) bool {
	for _, p := range busy {
		o := p.outlets[id]
		for i := range lanes {
			if o == nil || !o.part[i].waits {
				continue
			}
			part := &o.part[i]
			if due, known := n.rates[part.child]; known && float64(part.waiting) > due*(bufferTime+bufferTime/2).Seconds() {
				return true
			}
		}
	}
	return false
}

func (s *sender) adaptNode(id uint32, n *outgoing, busy []*sendPlace) error {
	now := time.Now()
	nowNS := bpf.NowNS()
	var moved uint64
	children := map[uint64][]*part{} // classes of each child
	seen := map[*outlet]bpf.Outflow{}
	var errs []error
	for _, p := range busy {
		o := p.outlets[id]
		if o == nil {
			continue
		}
		var f bpf.Outflow
		if err := s.obj.Outflows.Lookup(p.key(id), &f); err != nil {
			return fmt.Errorf("read what node %d sent: %w", id, err)
		}
		if f.CameBytes != 0 {
			errs = append(errs, p.tuneLanes(n, o, &f))
		}
		moved += f.CameBytes + f.Bytes // a backlog may last for minutes in which nothing comes
		for i := range f.Lane {
			if part := &o.part[i]; f.Lane[i].Child != 0 {
				part.see(f.Lane[i], o.mix.perByte(n.spec.Line), now, nowNS)
				if !part.idle() {
					children[part.child] = append(children[part.child], part)
				}
			}
		}
		errs = append(errs, p.findLost(id, o))
		seen[o] = f
	}
	if !n.share.came(moved) {
		return errors.Join(errs...)
	}
	limit := upCeiling(n.spec)
	rates, known, err := n.share.lanes(s.base, bpf.ClassKey{Node: id, Direction: n.by()}, limit, children)
	if err != nil || !known {
		return errors.Join(append(errs, err)...)
	}
	n.rates = rates
	for _, p := range busy {
		if o := p.outlets[id]; o != nil {
			errs = append(errs, p.adapt(n, o, o.due(rates, limit), seen[o], now), p.weighLanes(id, o))
		}
	}
	return errors.Join(errs...)
}

// lostLooks is the number of successive samples with a backlog after which HTB is asked whether there is one.
const lostLooks = 5

// findLost finds packets that were lost on their way through the queue, for example while the machine dropped packets.
// A class that only seems to have a backlog keeps what it does not use from others, for as long as it sends at all.
func (p *sendPlace) findLost(id uint32, o *outlet) error {
	suspect := false
	for i := range o.part {
		suspect = suspect || o.part[i].waited%lostLooks == lostLooks-1
	}
	if !suspect {
		return nil
	}
	queues, err := p.standingsOnce()
	if err != nil || o.lanes != 0 && queues[o.lanes].Packets != 0 { // a packet at the gate may be of any class
		return err
	}
	for i, minor := range o.minors(id) {
		if part := &o.part[i]; part.waited >= lostLooks-1 && queues[minor].Packets == 0 {
			part.lost += uint64(part.waiting)
			part.waiting, part.waits, part.waited = 0, false, 0
		}
	}
	return nil
}

// lanes returns what each class of a child may send, by child. known is false if nothing was charged yet.
func (s *share) lanes(base *bpf.Object, key bpf.ClassKey, limit uint64, children map[uint64][]*part) (rates map[uint64]float64, known bool, err error) {
	var clock bpf.Clock
	err = base.Clocks.Lookup(bpf.ClockKey{Node: key.Node, Direction: key.Direction}, &clock)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the clock of node %d: %w", key.Node, err)
	}
	nowNS := bpf.NowNS()
	went := s.progress.Went(clock, limit, nowNS)
	rates = map[uint64]float64{}
	shared := map[uint64][]*part{} // classes by the one that is charged
	promises := map[uint64]promise{}
	for child, parts := range children {
		p := promiseOf(base, child, key.Node)
		promises[child] = p
		if !p.only {
			shared[parts[0].class] = append(shared[parts[0].class], parts...)
			continue
		}
		g, err := classOfChild(base, key, bpf.ChildGuarantee|uint64(uint32(child)))
		if err != nil {
			return nil, false, err
		}
		rates[child] = namespaceShare(p.due(g, limit, nowNS), parts)
	}
	for class, parts := range shared {
		k, err := classOfChild(base, key, class|bpf.ChildDatagrams)
		if err != nil {
			return nil, false, err
		}
		of := promiseOf(base, class, key.Node)
		rate := namespaceShare(went.Due(clock, k, of.weight, of.bytesPerSec, limit, nowNS), parts)
		for _, p := range parts {
			p.weight = of.weight
			rates[p.child] = rate
			if p.child != class {
				rates[p.child] = min(rate+float64(promises[p.child].bytesPerSec), float64(limit)*due.MostOfLimit)
			}
		}
	}
	weighByRate(children, promises, rates, limit)
	return rates, true, nil
}

// weighByRate weighs the classes by the rate that is due to each, if one has a guarantee or a reservation.
func weighByRate(children map[uint64][]*part, promises map[uint64]promise, rates map[uint64]float64, limit uint64) {
	const whole = 10000
	promised := false
	for _, p := range promises {
		promised = promised || p.bytesPerSec != 0
	}
	for child, parts := range children {
		for _, p := range parts {
			p.byRate = promised
			if promised {
				p.weight = uint32(max(rates[child]/float64(limit)*whole, 1))
			}
		}
	}
}

func classOfChild(base *bpf.Object, key bpf.ClassKey, child uint64) (k bpf.Class, err error) {
	key.Child = child
	if err := base.Classes.Lookup(key, &k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return k, fmt.Errorf("read what %d owes to the clock of node %d: %w", child, key.Node, err)
	}
	return k, nil
}

// promise is what a child may send by its weight and its guarantee or reservation. Programs have equal weights. A class
// does not show its weight while it is not ahead of its clock.
type promise struct {
	weight      uint32
	bytesPerSec uint64 // guaranteed or reserved, 0 = nothing
	periodNS    uint64 // period of a reservation
	only        bool   // the child may send no more than that
}

// promiseOf returns the promise of a child below a node that limits the child.
func promiseOf(base *bpf.Object, child uint64, below uint32) promise {
	var n bpf.Node
	if child>>63 == 0 || base.Nodes.Lookup(uint32(child), &n) != nil || n.Weight == 0 {
		return promise{weight: enforce.DefaultWeight}
	}
	p := promise{weight: n.Weight}
	if n.ScopeId == 0 || n.ScopeId == below {
		p.bytesPerSec = n.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec
		p.periodNS, p.only = n.PeriodNs, n.Flags&bpf.NodeSliceOnly != 0 && p.bytesPerSec != 0
	}
	return p
}

// due returns what a child may send by a reservation without extra. Its clock is kept as far ahead as that of a class,
// and by one period more.
func (p promise) due(g bpf.Class, limit, nowNS uint64) float64 {
	return due.Paced(float64(p.bytesPerSec), float64(int64(g.Finish-nowNS)), float64(p.periodNS), float64(limit))
}

// due returns what all per-program classes in a queue may send together, given the rates of the children. A program may
// have little in the queue, and send the rest past it, where the rest is charged. It leaves that rest to no other
// class.
func (o *outlet) due(rates map[uint64]float64, limit uint64) uint64 {
	all, wanted, sent, waiting, alone := 0.0, 0.0, 0.0, 0, 0.0
	for i := range o.part {
		p := &o.part[i]
		rate, known := rates[p.child]
		if !known || p.idle() {
			continue
		}
		all += rate
		if p.waits {
			waiting++
			wanted, alone = wanted+min(rate, p.wants), rate
		} else {
			sent += min(p.sent, rate)
		}
	}
	switch {
	case waiting == 1: // no other class could take what this one does not use
		all = alone + sent
	case waiting > 1:
		all = wanted + sent
	case all == 0:
		all = float64(limit)
	}
	return uint64(max(min(all, float64(limit)*due.MostOfLimit), due.Least(float64(limit)), 1))
}

// adapt sets the rate of a node's class, unless the class nearly has that rate.
func (p *sendPlace) adapt(n *outgoing, o *outlet, rate uint64, f bpf.Outflow, now time.Time) error {
	o.mix.update(bpf.Inflow{Bytes: f.Bytes, LinkBytes: f.LinkBytes, AsideBytes: f.AsideBytes}, now, o.class.rate)
	c := o.classAt(rate, n)
	c.queueBytes = 0 // keep the queue
	if off := math.Abs(float64(c.rate)-float64(o.class.rate)) / float64(o.class.rate); off < 0.002 {
		return nil
	}
	if err := p.pair.SetRate(n.spec.ID, c.htb()); err != nil {
		return err
	}
	o.class.rate, o.class.bufferTicks, o.rate = c.rate, c.bufferTicks, rate
	return nil
}
