package shaping

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Non-TCP egress goes through a pair of devices of its own. A network namespace gets the pair when a limited program
// there first sends more non-TCP egress than its share. Before that, enforce/pacing charges the packets, and queues
// none.

// outgoing is a node that limits egress.
type outgoing struct {
	spec  enforce.NodeSpec
	share share
	began uint64             // rate of its class in a new per-namespace queue, in IP bytes per second
	rates map[uint64]float64 // by child: rate of its class in a per-namespace queue, in IP bytes per second
	times float64            // new ceiling / previous ceiling; 0 if the node had none, or one in another direction
}

// by returns DirectionUp or DirectionTotal, whichever ceiling is lower. The lower one limits the node's egress.
func (n *outgoing) by() uint32 {
	if up := directionCeiling(n.spec, enforce.Up); up == 0 || upCeiling(n.spec) < up {
		return bpf.DirectionTotal
	}
	return bpf.DirectionUp
}

// sender is the state that exists while there are queues for non-TCP egress. Each network namespace in which a
// limited program has sent more than its share has one.
type sender struct {
	log     *slog.Logger
	obj     *bpf.Sending
	base    *bpf.Object
	alias   string // alias of all its devices
	home    uint32 // namespace of the daemon
	nodes   map[uint32]*outgoing
	places  map[uint32]*sendPlace // queues by namespace
	failed  map[uint32]time.Time  // by namespace: when no queue could be made there
	slots   netdevice.Slots
	changed func(*sendPlace)    // called when devices came or went, or were left over
	beside  func(uint32) *place // returns the ingress state that uses the same devices, or nil
	renew   func() error        // makes sockets ask again which queues there are
	turnUp  time.Duration       // bounds the time of one look at devices: see netdevice.Turn
	expect  func() error        // called before a queue may take packets
	refused uint64              // network namespaces without queues, as their owner has too many
	follows bool                // a goroutine follows the shares
	buffers buffers
	short   short
	stop    chan struct{} // ends that goroutine
}

// upCeiling returns the lowest ceiling of a node that concerns egress, up or in total; 0 = none.
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

// newSender makes the state for the loaded programs. It takes over the per-namespace queues that an earlier process
// left. After an error it closes the programs.
func (k *Kernel) newSender(obj *bpf.Sending) (*sender, error) {
	s := &sender{
		log: k.log, base: k.base, obj: obj, alias: k.alias, nodes: map[uint32]*outgoing{},
		places: map[uint32]*sendPlace{}, failed: map[uint32]time.Time{}, stop: make(chan struct{}),
		buffers: buffers{some: true, settings: newSettings()}, // an earlier process may have made some smaller
		beside:  k.receiving, renew: k.pacing.RenewQueues, expect: func() error { return k.pacing.SetQueues(true) }, turnUp: k.turnUp,
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
	// sendQueue is the size of a class's queue in bytes. A sender waits when its socket's buffer is full, so the queue
	// holds the buffers of a few dozen sockets of a program. This size makes no packet wait longer.
	sendQueue = 16 << 20
	// sendBurst is the unused time that HTB makes up for at once. A longer one would make departures uneven.
	sendBurst = 2 * time.Millisecond
	// sendRetry is the pause after a failure to make a queue.
	sendRetry = time.Minute
)

func sendClass(rate uint64, linkShare float64) class {
	return classOf(rate, uint64(sendBurst), linkShare, 0)
}

// know records a node that limits egress.
func (s *sender) know(spec enforce.NodeSpec) *outgoing {
	n := s.nodes[spec.ID]
	if n == nil {
		n = &outgoing{}
	}
	before, was := upCeiling(n.spec), n.by()
	// A new class gets half of the limit, since TCP may want the other half at once. The first sample comes soon.
	n.spec, n.began, n.rates, n.times = spec, max(upCeiling(spec)/2, 1), nil, 0
	if before != 0 && n.by() == was { // the same clock holds, and its shares are known
		n.times = float64(upCeiling(spec)) / float64(before)
	} else {
		n.share = share{}
	}
	s.nodes[spec.ID] = n
	return n
}

// set makes the node's class in each per-namespace queue, or changes its rate.
func (s *sender) set(spec enforce.NodeSpec) error {
	n := s.know(spec)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.set(spec.ID, n))
	}
	return errors.Join(errs...)
}

// release forgets a node that limits egress no more, and lets its backlog leave. discard then removes what set made.
// The datapath must no longer send packets to the node.
func (s *sender) release(id uint32) error {
	delete(s.nodes, id)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.empty(id))
	}
	return errors.Join(append(errs, s.releaseBuffers())...)
}

// waiting counts the packets of a node in all queues.
func (s *sender) waiting(id uint32) (packets uint32) {
	for _, p := range s.places {
		n, _ := p.waiting(id) // classes that cannot be listed have gone
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

// close leaves everything in the kernel for a successor.
func (s *sender) close() error {
	close(s.stop)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.close())
	}
	return errors.Join(append(errs, s.obj.Close())...)
}

// remove removes everything.
func (s *sender) remove() error {
	close(s.stop)
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.remove())
	}
	return errors.Join(append(errs, s.obj.Remove())...)
}

// awaitDatagrams makes a queue in each network namespace where a limited socket needs one.
func (k *Kernel) awaitDatagrams() {
	for {
		var wanted bpf.QueueWanted
		select {
		case <-k.stop:
			return
		case wanted = <-k.pacing.QueueWanted():
		}
		k.mu.Lock()
		err := k.startSending(&wanted)
		k.mu.Unlock()
		if err == nil {
			continue
		}
		k.log.Warn("what is no TCP has no queue: what is too much of it is dropped", "netns", wanted.Netns, "err", err)
		if k.sends() {
			continue // another namespace may get a queue
		}
		select {
		case <-k.stop:
			return
		case <-time.After(sendRetry):
		}
	}
}

// sends reports whether the programs that queues need are loaded.
func (k *Kernel) sends() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.send != nil
}

// startSending makes a queue in the network namespace that wants one, if limits on egress are in force. If wanted is
// nil, it takes over the queues that an earlier process left.
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

// loadSending loads the programs that queues need, if a limit on egress is in force or always is true.
func (k *Kernel) loadSending(always bool) error {
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	limits := func(spec enforce.NodeSpec) bool { return upCeiling(spec) != 0 }
	if !always && !slices.ContainsFunc(specs, limits) {
		return nil // the limits have been lifted meanwhile
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
			k.log.Warn("what is no TCP has no queue: what is too much of it is dropped", "netns", p.NS, "err", errors.Join(err, p.remove()))
		}
	}
	return nil
}

// settleSending has the queues used, and their rates kept at the shares, while limits need queues. Without such limits
// it removes everything.
func (k *Kernel) settleSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	if len(s.nodes) == 0 {
		if k.draining() {
			return nil // endDrains calls settleSending again
		}
		k.send = nil
		err := errors.Join(k.pacing.SetQueues(false), s.remove())
		k.loadAhead(false, k.preload)
		return err
	}
	if len(s.places) > 0 {
		if err := k.pacing.SetQueues(true); err != nil {
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
	if k.send != p.s || p.s.places[p.NS] != p {
		return
	}
	var err error
	if p.leaving {
		err = p.look(k.holds)
	} else {
		err = errors.Join(p.ensurePair(), p.followDevices())
	}
	if err != nil {
		k.log.Warn("a device is not looked after", "netns", p.NS, "err", err)
	}
}

// receiving returns the ingress state of a network namespace, nil if it has none.
func (k *Kernel) receiving(ns uint32) *place {
	if k.on == nil {
		return nil
	}
	return k.on.places[ns]
}

// sendingAt returns the queue for non-TCP egress of a network namespace, nil if it has none.
func (k *Kernel) sendingAt(ns uint32) *sendPlace {
	if k.send == nil {
		return nil
	}
	return k.send.places[ns]
}

// setSending sets a node's egress classes, or ends them. The limit has been changed in the kernel's maps already.
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

// downSending removes all queues for non-TCP egress. The limits are lifted already.
func (k *Kernel) downSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	k.send = nil
	s.renew = func() error { return nil } // without limits no socket needs a queue
	var errs []error
	for id := range s.nodes { // the backlogs of all nodes leave at the same time
		for _, p := range s.places {
			errs = append(errs, p.empty(id))
		}
	}
	return errors.Join(append(errs, s.remove())...)
}
