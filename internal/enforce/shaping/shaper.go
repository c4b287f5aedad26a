package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

var errTooMany = errors.New("too many")

// limited is a node that limits what comes in.
type limited struct {
	spec  enforce.NodeSpec
	class class // as HTB was told
	mix   mix
	share share  // of a total
	due   uint64 // what the total leaves for what comes in, IP bytes/s; 0 = no total
	// how often it was looked at since the limit began or was lowered, and when
	looks  int
	looked time.Time
}

// shaper is what exists while a limit on what comes in stands.
type shaper struct {
	log        *slog.Logger
	obj        *bpf.Shaping
	base       *bpf.Object
	sockets    *ebpf.Map // of the other object
	home       uint32    // namespace of the pair: the daemon's
	pair       pair
	nodes      map[uint32]*limited
	places     map[uint32]*place // by namespace
	looks      uint32            // for places
	portsKnown uint32            // 1: what comes in for other ports is let pass unseen
	slots      slots
	watch      *watcher      // at home
	changed    func(*place)  // devices came or went, or were left; nil: at home
	turnUp     time.Duration // bounds a look at devices: see turn
	stop       chan struct{} // ends what looks at the totals
	refused    uint64        // network namespaces: their owner has too many
	revisit    bool          // windows that nothing keeps but visits: before 6.12
}

// newShaper makes the pair for the loaded programs, or takes over what an earlier
// process left. No device is looked at yet. After an error the programs are closed.
func newShaper(base *bpf.Object, obj *bpf.Shaping, pinDir string, log *slog.Logger) (*shaper, error) {
	s := &shaper{log: log, base: base, obj: obj, stop: make(chan struct{}), nodes: map[uint32]*limited{}, places: map[uint32]*place{}, sockets: base.Sockets}
	var err error
	if s.home, err = netnamespace.Of("thread-self"); err != nil {
		return nil, errors.Join(err, s.obj.Close())
	}
	if s.pair.nl, err = netlink.NewHandle(); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink: %w", err), s.obj.Close())
	}
	s.pair.pinDir = pinDir
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

// ensurePair makes the pair where it is missing: also when somebody has removed
// it while limits stand.
func (s *shaper) ensurePair() error {
	var was bpf.Shaper
	if err := s.obj.Shaper.Lookup(uint32(0), &was); err != nil {
		return fmt.Errorf("read which devices are netnice's: %w", err)
	}
	found := false
	if was.Netns == s.home {
		var err error
		if found, err = s.pair.find(was.QueueIfindex, was.ReturnIfindex); err != nil {
			return err
		}
	}
	if !found {
		s.pair.queue, s.pair.back = nil, nil
		if err := s.pair.make(); err != nil {
			return err
		}
	}
	if err := attach(s.pair.nl, s.pair.back, s.obj.NnShapeBack); err != nil {
		return err
	}
	now := bpf.Shaper{
		QueueIfindex: uint32(s.pair.queue.Attrs().Index), ReturnIfindex: uint32(s.pair.back.Attrs().Index), Netns: s.home,
		PortsKnown: s.portsKnown,
	}
	if err := s.obj.Shaper.Put(uint32(0), &now); err != nil {
		return fmt.Errorf("write which devices are netnice's: %w", err)
	}
	if !found {
		for id, n := range s.nodes {
			if err := s.pair.setClass(id, n.class); err != nil {
				return err
			}
		}
	}
	return nil
}

// wanted is the class that a node should have by now.
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

// set makes room for a node's packets, or changes its rate.
func (s *shaper) set(spec enforce.NodeSpec) error {
	n := s.nodes[spec.ID]
	if n == nil {
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
		n.looks = narrow // nobody was promised windows without it
	}
	c = c.wide(n.looks)
	if err := s.pair.setClass(spec.ID, c); err != nil {
		return err
	}
	fresh := bpf.Inflow{ShareScale: 256}
	err := s.obj.Inflows.Update(spec.ID, &fresh, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("count what node %d receives: %w", spec.ID, err)
	}
	if err == nil {
		n.mix.last = fresh
	}
	n.class = c
	s.nodes[spec.ID] = n
	return nil
}

// empty lets what waits of a node go at once.
func (s *shaper) empty(id uint32) error {
	n := s.nodes[id]
	if n == nil {
		return nil
	}
	return s.pair.setClass(id, class{rate: drained, bufferTicks: n.class.bufferTicks})
}

// release lets what waits of a node go, which is limited no more; discard removes
// what set made. The node has to be off the packets' way already.
func (s *shaper) release(id uint32) error {
	err := s.empty(id)
	delete(s.nodes, id)
	return err
}

// awaitEmpty waits until nothing waits of any node, for a while.
func (s *shaper) awaitEmpty() {
	for until := time.Now().Add(drainTime); time.Now().Before(until); time.Sleep(drainPoll) {
		now, _ := s.pair.standings()
		left := uint32(0)
		for _, q := range now {
			left += q.packets
		}
		if left == 0 {
			return
		}
	}
}

func (s *shaper) discard(id uint32) error {
	return errors.Join(s.pair.removeClass(id), gone(s.obj.Inflows.Delete(id)), gone(s.obj.Dues.Delete(id)))
}

// tune tells HTB how many of its bytes are IP's, as the traffic is by now.
func (s *shaper) tune() error {
	now := time.Now()
	var errs []error
	for id, n := range s.nodes {
		if n.spec.Store != 0 {
			continue // nobody's yet
		}
		var f bpf.Inflow
		if err := s.obj.Inflows.Lookup(id, &f); err != nil {
			errs = append(errs, fmt.Errorf("read what node %d received: %w", id, err))
			continue
		}
		n.mix.update(f, now)
		c := n.wanted()
		if now.Sub(n.looked) >= wideTime*9/10 {
			n.looks, n.looked = n.looks+1, now
		}
		if c = c.wide(n.looks); !c.differs(n.class) {
			continue
		}
		if err := s.pair.setClass(id, c); err != nil {
			errs = append(errs, err)
			continue
		}
		n.class = c
	}
	return errors.Join(errs...)
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
	return p.within(func() error {
		again, err := p.s.obj.VisitWindows()
		p.s.revisit = p.s.revisit || again
		return err
	})
}

// rest ends what goes on by itself.
func (s *shaper) rest() {
	close(s.stop)
	if s.watch != nil {
		s.watch.close()
	}
}

// close leaves everything as it is for a successor.
func (s *shaper) close() error {
	s.rest()
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.close())
	}
	s.pair.nl.Close()
	return errors.Join(append(errs, s.obj.Close())...)
}

// remove leaves nothing.
func (s *shaper) remove() error {
	s.rest()
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.remove())
	}
	errs = append(errs, s.pair.remove())
	s.pair.nl.Close()
	return errors.Join(append(errs, s.obj.Remove())...)
}
