package shaping

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// What is sent and is no TCP goes by a pair of devices of its own, in each network
// namespace from the moment when a limited program there first sends more of it
// than its share. Before that, pacing charges it and holds nothing.

// outgoing is a node that limits what is sent.
type outgoing struct {
	spec  enforce.NodeSpec
	share share
	began uint64             // rate of its class in a place that is new, in IP bytes per second
	rates map[uint64]float64 // what each child may send in a place
	times float64            // what the limit is of what it was before; 0 = there was no such one
}

// by is in which direction a node limits what is sent: that of its lower ceiling.
func (n *outgoing) by() uint32 {
	if up := directionCeiling(n.spec, enforce.Up); up == 0 || upCeiling(n.spec) < up {
		return bpf.DirectionTotal
	}
	return bpf.DirectionUp
}

// sender is what exists while there are queues for what is sent: in each network
// namespace in which a limited program has sent more than its share.
type sender struct {
	log     *slog.Logger
	obj     *bpf.Sending
	base    *bpf.Object
	alias   string // of its devices
	home    uint32 // the daemon's namespace
	nodes   map[uint32]*outgoing
	places  map[uint32]*sendPlace // by namespace
	failed  map[uint32]time.Time  // when one could not be made there
	slots   slots
	changed func(*sendPlace)    // devices came or went, or were left
	beside  func(uint32) *place // who else uses a namespace's devices, if anybody
	renew   func() error        // sockets are to find out which queues there are
	turnUp  time.Duration       // bounds a look at devices: see turn
	expect  func() error        // a queue will take packets
	refused uint64              // network namespaces: their owner has too many
	follows bool                // something looks at the shares
	buffers buffers
	short   short
	stop    chan struct{} // ends that
}

// upCeiling is the rate of a node on what is sent, up or in total; 0 is none.
func upCeiling(spec enforce.NodeSpec) (rate uint64) {
	for _, limits := range spec.Ceilings {
		for _, d := range []enforce.Direction{enforce.Up, enforce.Total} {
			if r := limits[d].BytesPerSec; r != 0 && (rate == 0 || r < rate) {
				rate = r
			}
		}
	}
	return rate
}

// newSender learns which places an earlier process left, for the loaded programs.
// After an error the programs are closed.
func (k *Kernel) newSender(obj *bpf.Sending) (*sender, error) {
	s := &sender{
		log: k.log, base: k.Object(), obj: obj, alias: k.alias, nodes: map[uint32]*outgoing{},
		places: map[uint32]*sendPlace{}, failed: map[uint32]time.Time{}, stop: make(chan struct{}),
		buffers: buffers{some: true}, // an earlier process may have set some
		beside:  k.receiving, renew: k.RenewQueues, expect: func() error { return k.SetQueues(true) }, turnUp: k.turnUp,
	}
	s.short.quiet = shortLooks
	s.changed = func(p *sendPlace) { k.sendDevicesChanged(p) }
	var err error
	if s.home, err = netnamespace.Of("thread-self"); err != nil {
		return nil, errors.Join(err, s.obj.Close())
	}
	if err := s.obj.Pin(); err != nil {
		return nil, errors.Join(err, s.obj.Close())
	}
	if err := errors.Join(s.resume(), s.obj.FollowShort(false)); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

const (
	// A sender waits when its socket's buffer is full, so the queue has room for
	// the buffers of a few dozen sockets of a program; nothing is in it longer for
	// that.
	sendQueue = 16 << 20
	// What HTB lets through at once, late: more is uneven.
	sendBurst = 2 * time.Millisecond
	// When queues could not be made, they are tried again so much later.
	sendRetry = time.Minute
)

func sendClass(rate uint64, linkShare float64) class {
	return classOf(rate, uint64(sendBurst), linkShare, 0)
}

// know notes a node that limits what is sent.
func (s *sender) know(spec enforce.NodeSpec) *outgoing {
	n := s.nodes[spec.ID]
	if n == nil {
		n = &outgoing{}
	}
	before, was := upCeiling(n.spec), n.by()
	// TCP may want its half at once; the first look is soon.
	n.spec, n.began, n.rates, n.times = spec, max(upCeiling(spec)/2, 1), nil, 0
	if before != 0 && n.by() == was { // who shares it is known
		n.times = float64(upCeiling(spec)) / float64(before)
	} else {
		n.share = share{}
	}
	s.nodes[spec.ID] = n
	return n
}

// set makes room for a node's packets, or changes its rate.
func (s *sender) set(spec enforce.NodeSpec) error {
	n := s.know(spec)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.set(spec.ID, n))
	}
	return errors.Join(errs...)
}

// release lets what waits of a node go, which is limited no more; discard removes
// what set made. The node has to be off the packets' way already.
func (s *sender) release(id uint32) error {
	delete(s.nodes, id)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.empty(id))
	}
	return errors.Join(append(errs, s.releaseBuffers())...)
}

// waiting counts the packets that wait of a node.
func (s *sender) waiting(id uint32) (packets uint32) {
	for _, p := range s.places {
		n, _ := p.waiting(id) // what cannot be asked has gone
		packets += n
	}
	return packets
}

func (s *sender) discard(id uint32) error {
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.clear(id))
	}
	return errors.Join(errs...)
}

// close leaves everything as it is for a successor.
func (s *sender) close() error {
	close(s.stop)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.close())
	}
	return errors.Join(append(errs, s.obj.Close())...)
}

// remove leaves nothing.
func (s *sender) remove() error {
	close(s.stop)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.remove())
	}
	return errors.Join(append(errs, s.obj.Remove())...)
}

// awaitDatagrams makes a queue where a limited socket needs one.
func (k *Kernel) awaitDatagrams() {
	for {
		var wanted bpf.QueueWanted
		select {
		case <-k.stop:
			return
		case wanted = <-k.QueueWanted():
		}
		k.mu.Lock()
		err := k.startSending(&wanted)
		k.mu.Unlock()
		if err == nil {
			continue
		}
		k.log.Warn("what is no TCP has no queue: what is too much of it is dropped", "netns", wanted.Netns, "err", err)
		if k.sends() {
			continue // elsewhere there may be
		}
		select {
		case <-k.stop:
			return
		case <-time.After(sendRetry):
		}
	}
}

// sends says whether what queues need is loaded.
func (k *Kernel) sends() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.send != nil
}

// startSending makes a queue where it is wanted, for the limits that stand, or
// takes over what an earlier process left.
func (k *Kernel) startSending(wanted *bpf.QueueWanted) error {
	if k.closed {
		return nil
	}
	if k.send == nil {
		if err := k.loadSending(wanted == nil); err != nil || k.send == nil {
			return err
		}
	}
	if wanted != nil {
		if err := k.send.openPlace(wanted.Netns, wanted.Tgid); err != nil {
			return err
		}
	}
	return k.settleSending()
}

// loadSending loads what queues need, if a limit needs them or always.
func (k *Kernel) loadSending(always bool) error {
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	limits := func(spec enforce.NodeSpec) bool { return upCeiling(spec) != 0 }
	if !always && !slices.ContainsFunc(specs, limits) {
		return nil // they have been lifted meanwhile
	}
	obj, err := k.sendingObject()
	if err != nil {
		return err
	}
	s, err := k.newSender(obj)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		if limits(spec) {
			spec.BacklogNS = k.backlogs[spec.ID]
			s.know(spec)
		}
	}
	k.send = s
	for _, p := range s.places {
		if err := p.begin(); err != nil {
			k.log.Warn("what is no TCP has no queue: what is too much of it is dropped", "netns", p.ns, "err", errors.Join(err, p.remove()))
		}
	}
	return nil
}

// settleSending has the queues used and looked after while limits need them, or
// removes all.
func (k *Kernel) settleSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	if len(s.nodes) == 0 {
		if k.draining() {
			return nil // it is called again then
		}
		k.send = nil
		err := errors.Join(k.SetQueues(false), s.remove())
		k.loadAhead(false, k.preload)
		return err
	}
	if len(s.places) > 0 {
		if err := k.SetQueues(true); err != nil {
			return err
		}
	}
	if s.follows {
		return nil
	}
	s.follows = true
	go k.followShares("what is no TCP", s.stop, func() error {
		if k.send != s {
			return nil
		}
		return s.adapt()
	})
	return nil
}

func (k *Kernel) sendDevicesChanged(p *sendPlace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.send != p.s || p.s.places[p.ns] != p {
		return
	}
	var err error
	if p.leaving {
		err = p.look(k.holds)
	} else {
		err = errors.Join(p.ensurePair(), p.followDevices())
	}
	if err != nil {
		k.log.Warn("a device is not looked after", "netns", p.ns, "err", err)
	}
}

// receiving is a namespace as a place for what comes in, nil if it is none.
func (k *Kernel) receiving(ns uint32) *place {
	if k.on == nil {
		return nil
	}
	return k.on.places[ns]
}

// sendingAt is a namespace as a place for what is sent and queued, nil if it is none.
func (k *Kernel) sendingAt(ns uint32) *sendPlace {
	if k.send == nil {
		return nil
	}
	return k.send.places[ns]
}

// setSending sets a node's class, or takes it away: after the limit has been changed.
func (k *Kernel) setSending(spec enforce.NodeSpec) error {
	switch {
	case k.send == nil:
		return nil
	case upCeiling(spec) != 0:
		return k.send.set(spec)
	}
	return k.sendsNoMore(spec.ID)
}

func (k *Kernel) sendsNoMore(id uint32) error {
	if k.send == nil || k.send.nodes[id] == nil {
		return nil
	}
	k.drain(id)
	return k.send.release(id)
}

// downSending removes all of it: the limits are lifted already.
func (k *Kernel) downSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	k.send = nil
	s.renew = func() error { return nil } // nothing is judged any more
	var errs []error
	for id := range s.nodes { // all at a time
		for _, p := range s.places {
			errs = append(errs, p.empty(id))
		}
	}
	return errors.Join(append(errs, s.remove())...)
}
