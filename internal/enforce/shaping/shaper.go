package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
	"github.com/netnice/netnice/internal/netnamespace"
)

// limited is a node that limits ingress.
type limited struct {
	spec  enforce.NodeSpec
	class class // the parameters that HTB has
	mix   mix
	share share  // its part of a total
	due   uint64 // rate that the total leaves for ingress, IP bytes/s; 0 = no total
	told  uint64 // rate that the datapath divides, if that is not the limit; see tell
	// number of looks since the limit began or was lowered, and the time of the last one
	looks  int
	looked time.Time
}

// shaper is the state that exists while a limit on ingress is in force.
type shaper struct {
	log        *slog.Logger
	obj        *bpf.Shaping
	base       *bpf.Object
	sockets    *ebpf.Map // map of the pacing object
	home       uint32    // namespace of the pair: the daemon's
	pair       queuepair.Pair
	nodes      map[uint32]*limited
	places     map[uint32]*place // by namespace
	looks      uint32            // number of looks for namespaces so far
	portsKnown uint32            // 1: packets for ports that are not in the map pass at once
	slots      netdevice.Slots
	watch      *netdevice.Watcher // watches the daemon's namespace
	changed    func(*place)       // called when devices came or went, or were left over; nil: in the daemon's namespace
	turnUp     time.Duration      // bounds the time of one look at devices: see netdevice.Turn
	stop       chan struct{}      // ends the goroutine that follows the totals
	refused    uint64             // network namespaces without queues, as their owner has too many
	revisit    bool               // some windows need further visits, as no program keeps them: before 6.12
}

// newShaper makes the pair for the loaded programs, or takes over the one that an earlier process left. It attaches
// nothing to other devices yet. After an error it closes the programs.
func newShaper(base *bpf.Object, obj *bpf.Shaping, alias string, log *slog.Logger) (*shaper, error) {
	s := &shaper{log: log, base: base, obj: obj, stop: make(chan struct{}), nodes: map[uint32]*limited{}, places: map[uint32]*place{}, sockets: base.Sockets}
	var err error
	if s.home, err = netnamespace.Of("thread-self"); err != nil {
		return nil, errors.Join(err, s.obj.Close())
	}
	if s.pair.NL, err = netlink.NewHandle(); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink: %w", err), s.obj.Close())
	}
	s.pair.Alias = alias
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func (s *shaper) open() error {
	if err := s.obj.Pin(); err != nil {
		return err
	}
	var was bpf.Shaper
	if err := s.obj.Shaper.Lookup(uint32(0), &was); err != nil {
		return fmt.Errorf("read which devices are netnice's: %w", err)
	}
	if err := s.resumePlaces(was); err != nil {
		return err
	}
	if err := s.ensurePair(); err != nil {
		return err
	}
	return s.obj.AttachHooks()
}

// ensurePair makes the pair where it is missing, also when another program has removed it while limits are in
// force.
func (s *shaper) ensurePair() error {
	var was bpf.Shaper
	if err := s.obj.Shaper.Lookup(uint32(0), &was); err != nil {
		return fmt.Errorf("read which devices are netnice's: %w", err)
	}
	found := false
	if was.Netns == s.home {
		var err error
		if found, err = s.pair.Find(was.QueueIfindex, was.ReturnIfindex); err != nil {
			return err
		}
	}
	if !found {
		s.pair.Queue, s.pair.Back = nil, nil
		if err := s.pair.Make(); err != nil {
			return err
		}
	}
	if err := attach(s.pair.NL, s.pair.Back, s.obj.NnShapeBack); err != nil {
		return err
	}
	now := bpf.Shaper{
		QueueIfindex: uint32(s.pair.Queue.Attrs().Index), ReturnIfindex: uint32(s.pair.Back.Attrs().Index), Netns: s.home,
		PortsKnown: s.portsKnown,
	}
	if err := s.obj.Shaper.Put(uint32(0), &now); err != nil {
		return fmt.Errorf("write which devices are netnice's: %w", err)
	}
	if !found {
		for id, n := range s.nodes {
			if err := s.pair.SetClass(id, n.class.htb()); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted returns the class that a node should have at present.
func (n *limited) wanted() class {
	rate, burst := ceiling(n.spec)
	if n.due != 0 {
		rate = min(rate, n.due)
	}
	c := classOf(rate, burst, n.mix.on(n.spec.Line), n.mix.aside)
	if n.spec.Kind == enforce.KindSocket {
		c = c.phased(n.spec.ID)
	}
	return c
}

// set makes a class for a node's packets, or changes its rate.
func (s *shaper) set(spec enforce.NodeSpec) error {
	n := s.nodes[spec.ID]
	made := n == nil
	if made {
		n = &limited{mix: freshMix()}
	}
	n.spec = spec
	if err := s.setTotal(spec.ID, n); err != nil {
		return err
	}
	c := n.wanted()
	if n.class.rate == 0 || c.rate < n.class.rate {
		n.looks, n.looked = 0, time.Now()
	}
	if spec.Store != 0 {
		n.looks = narrow // no connection was promised a window before this node got an address
	}
	c = c.wide(n.looks)
	if err := s.pair.SetClass(spec.ID, c.htb()); err != nil {
		return err
	}
	fresh := bpf.Inflow{ShareScale: 256}
	err := s.obj.Inflows.Update(spec.ID, &fresh, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("count what node %d receives: %w", spec.ID, err)
	}
	if err != nil { // the counters run since before this daemon: the mix begins with them as they are
		if err := s.obj.Inflows.Lookup(spec.ID, &fresh); err != nil {
			return fmt.Errorf("read what node %d received: %w", spec.ID, err)
		}
	}
	if made || err == nil {
		n.mix.last = fresh
	}
	n.class = c
	s.nodes[spec.ID] = n
	return nil
}

// empty lets the backlog of a node leave at once.
func (s *shaper) empty(id uint32) error {
	n := s.nodes[id]
	if n == nil {
		return nil
	}
	return s.pair.SetClass(id, class{rate: queuepair.Unlimited, bufferTicks: n.class.bufferTicks}.htb())
}

// release forgets a node that limits ingress no more, and lets its backlog leave. discard then removes what set made.
// The datapath must no longer send packets to the node.
func (s *shaper) release(id uint32) error {
	err := s.empty(id)
	delete(s.nodes, id)
	return err
}

// awaitEmpty waits until no node has a backlog, for drainTime at most.
func (s *shaper) awaitEmpty() {
	for until := time.Now().Add(drainTime); time.Now().Before(until); time.Sleep(drainPoll) {
		now, _ := s.pair.Standings()
		left := uint32(0)
		for _, q := range now {
			left += q.Packets
		}
		if left == 0 {
			return
		}
	}
}

func (s *shaper) discard(id uint32) error {
	return errors.Join(s.pair.RemoveClass(id), gone(s.obj.Inflows.Delete(id)), gone(s.obj.QueueRates.Delete(id)))
}

// tune sets each class to the share of IP bytes that the present traffic has in HTB's bytes.
func (s *shaper) tune() error {
	now := time.Now()
	var errs []error
	for id, n := range s.nodes {
		if n.spec.Store != 0 {
			continue // no address has it yet
		}
		var f bpf.Inflow
		if err := s.obj.Inflows.Lookup(id, &f); err != nil {
			errs = append(errs, fmt.Errorf("read what node %d received: %w", id, err))
			continue
		}
		n.mix.update(f, now, n.class.rate)
		c := n.wanted()
		if err := s.tell(id, n, c); err != nil {
			errs = append(errs, err)
		}
		if now.Sub(n.looked) >= wideTime*9/10 {
			n.looks, n.looked = n.looks+1, now
		}
		if c = c.wide(n.looks); !c.differs(n.class) {
			continue
		}
		if err := s.pair.SetClass(id, c.htb()); err != nil {
			errs = append(errs, err)
			continue
		}
		n.class = c
	}
	return errors.Join(errs...)
}

// tell enters the rate that a node's queue has, where that is less than its limit by more than the datapath counts as
// reached: a part passes beside the queue, or the line carries more than IP bytes. The datapath divides it among
// receivers. A total has its own.
func (s *shaper) tell(id uint32, n *limited, c class) error {
	if total(n.spec) != 0 {
		return nil
	}
	limit, _ := ceiling(n.spec)
	rate := n.mix.inside(c)
	if rate+limit/64 >= limit {
		if n.told == 0 {
			return nil
		}
		return s.untell(id, n)
	}
	if off := math.Abs(float64(rate) - float64(n.told)); off < float64(rate)/256 {
		return nil
	}
	if err := s.obj.QueueRates.Put(id, rate); err != nil {
		return fmt.Errorf("enter the rate of node %d's queue: %w", id, err)
	}
	n.told = rate
	return nil
}

// untell has the datapath divide the limit itself.
func (s *shaper) untell(id uint32, n *limited) error {
	if err := gone(s.obj.QueueRates.Delete(id)); err != nil {
		return err
	}
	n.told = 0
	return nil
}

func (s *shaper) visitWindows() error {
	s.revisit = false
	var errs []error
	for _, p := range s.places {
		if p.broken == nil {
			errs = append(errs, p.visitWindows())
		}
	}
	return errors.Join(errs...)
}

func (p *place) visitWindows() error {
	return p.Within(func() error {
		again, err := p.s.obj.VisitWindows()
		p.s.revisit = p.s.revisit || again
		return err
	})
}

// rest ends the background work.
func (s *shaper) rest() {
	close(s.stop)
	if s.watch != nil {
		s.watch.Close()
	}
}

// close leaves everything in the kernel for a successor.
func (s *shaper) close() error {
	s.rest()
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.close())
	}
	s.pair.NL.Close()
	return errors.Join(append(errs, s.obj.Close())...)
}

// remove removes everything.
func (s *shaper) remove() error {
	s.rest()
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.remove())
	}
	errs = append(errs, s.pair.Remove())
	s.pair.NL.Close()
	return errors.Join(append(errs, s.obj.Remove())...)
}
