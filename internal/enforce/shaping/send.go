package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// What is sent and is no TCP goes by a pair of devices of its own, from the moment
// when a limited program first sends more of it than its share until the last
// limit on what is sent goes. Before that, pacing charges it and holds nothing.

// outgoing is a node that limits what is sent.
type outgoing struct {
	spec  enforce.NodeSpec
	class class // as HTB was told
	mix   mix
	share share
}

// sender is what exists while there are queues for what is sent.
type sender struct {
	log      *slog.Logger
	obj      *bpf.Sending
	base     *bpf.Object
	pair     pair
	nodes    map[uint32]*outgoing
	devices  map[int]bpf.Device
	attached map[int]bool
	nextSlot slotCounter
	watch    *watcher
	stop     chan struct{} // ends what looks at the shares
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

// newSender loads the programs and makes the pair, or takes over what an earlier
// process left. No device is looked at yet.
func newSender(base *bpf.Object, pinDir string, log *slog.Logger) (*sender, error) {
	s := &sender{
		log: log, base: base, nodes: map[uint32]*outgoing{},
		devices: map[int]bpf.Device{}, attached: map[int]bool{}, stop: make(chan struct{}),
	}
	var err error
	if s.obj, err = base.LoadSending(); err != nil {
		return nil, err
	}
	if s.pair.nl, err = netlink.NewHandle(); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink: %w", err), s.obj.Close())
	}
	s.pair.pinDir = pinDir
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.remove(nil))
	}
	return s, nil
}

func (s *sender) open() error {
	if err := s.readDevices(); err != nil {
		return err
	}
	return s.ensurePair()
}

// ensurePair makes the pair where it is missing: also when somebody has removed
// it while limits stand.
func (s *sender) ensurePair() error {
	var was bpf.Shaper
	if err := s.obj.Sender.Lookup(uint32(0), &was); err != nil {
		return fmt.Errorf("read which devices are netnice's: %w", err)
	}
	here, err := netnsOf("thread-self")
	if err != nil {
		return err
	}
	found, err := s.pair.find(was, here)
	if err != nil {
		return err
	}
	if !found {
		s.pair.queue, s.pair.back = nil, nil
		if err := s.pair.make(); err != nil {
			return err
		}
	}
	if err := attach(s.pair.nl, s.pair.back, s.obj.NnSendBack); err != nil {
		return err
	}
	now := bpf.Shaper{
		QueueIfindex: uint32(s.pair.queue.Attrs().Index), ReturnIfindex: uint32(s.pair.back.Attrs().Index), Netns: here,
	}
	if err := s.obj.Sender.Put(uint32(0), &now); err != nil {
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

const (
	// A sender waits when its socket's buffer is full, so the queue has room for
	// the buffers of a few dozen sockets; nothing is in it longer for that.
	leastSendQueue = 8 << 20
	// What HTB lets through at once, late: more is uneven.
	sendBurst = 2 * time.Millisecond
	// When queues could not be made, they are tried again so much later.
	sendRetry = time.Minute
)

func sendClass(rate uint64, linkShare float64) class {
	c := classOf(rate, uint64(sendBurst), linkShare, 0)
	c.queueBytes = max(c.queueBytes, leastSendQueue)
	return c
}

// set makes room for a node's packets, or changes its rate.
func (s *sender) set(spec enforce.NodeSpec) error {
	rate := upCeiling(spec)
	n := s.nodes[spec.ID]
	if n == nil {
		n = &outgoing{mix: mix{at: time.Now(), share: usualShare}}
	}
	// TCP may want its half at once; the first look is soon.
	c := sendClass(max(rate/2, 1), n.mix.share)
	if err := s.pair.setClass(spec.ID, c); err != nil {
		return err
	}
	err := s.obj.Outflows.Update(spec.ID, &bpf.Outflow{}, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("count what node %d sends: %w", spec.ID, err)
	}
	n.spec, n.class, n.share = spec, c, share{}
	s.nodes[spec.ID] = n
	return nil
}

// clear removes what set made. The node has to be off the packets' way already:
// what waits is let go first, so that nothing is lost.
func (s *sender) clear(id uint32) error {
	n := s.nodes[id]
	if n == nil {
		return nil
	}
	if err := s.pair.setClass(id, class{rate: drained, bufferTicks: n.class.bufferTicks}); err != nil {
		return err
	}
	for until := time.Now().Add(drainTime); time.Now().Before(until); time.Sleep(drainPoll) {
		now, err := s.pair.standings()
		if err != nil || now[id].packets == 0 {
			break
		}
	}
	delete(s.nodes, id)
	return errors.Join(s.pair.removeClass(id), gone(s.obj.Outflows.Delete(id)))
}

// close leaves everything as it is for a successor.
func (s *sender) close() error {
	s.rest()
	s.pair.nl.Close()
	return s.obj.Close()
}

// rest ends what goes on by itself.
func (s *sender) rest() {
	close(s.stop)
	if s.watch != nil {
		s.watch.close()
	}
}

// remove leaves nothing; beside is who else uses the devices, if anybody.
func (s *sender) remove(beside *place) error {
	s.rest()
	var errs []error
	links, err := s.pair.nl.LinkList()
	errs = append(errs, err)
	there := map[int]bool{}
	for _, l := range links {
		there[l.Attrs().Index] = true
	}
	for index := range maps.Clone(s.devices) {
		errs = append(errs, s.leave(index, there[index], beside))
	}
	errs = append(errs, s.pair.remove())
	s.pair.nl.Close()
	return errors.Join(append(errs, s.obj.Remove())...)
}

// awaitDatagrams makes the queues when a limited socket needs one.
func (k *Kernel) awaitDatagrams() {
	for {
		select {
		case <-k.stop:
			return
		case <-k.QueueWanted():
		}
		k.mu.Lock()
		err := k.startSending()
		k.mu.Unlock()
		if err == nil {
			continue
		}
		k.log.Warn("what is no TCP has no queue: what is too much of it is dropped", "err", err)
		select {
		case <-k.stop:
			return
		case <-time.After(sendRetry):
		}
	}
}

// startSending makes what sending needs, for the limits that stand.
func (k *Kernel) startSending() error {
	if k.send != nil || k.closed {
		return nil
	}
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	s, err := newSender(k.Object(), k.PinDir(), k.log)
	if err != nil {
		return err
	}
	k.send = s
	for _, spec := range specs {
		if upCeiling(spec) != 0 {
			err = errors.Join(err, s.set(spec))
		}
	}
	if err == nil {
		err = k.settleSending()
	}
	if err != nil {
		k.send = nil
		return errors.Join(err, k.SetQueues(false), s.remove(k.home()))
	}
	return nil
}

// settleSending attaches to devices what the present limits need, or removes all
// if there is none.
func (k *Kernel) settleSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	if len(s.nodes) == 0 {
		k.send = nil
		return errors.Join(k.SetQueues(false), s.remove(k.home()))
	}
	if err := k.SetQueues(true); err != nil {
		return err
	}
	if err := s.followDevices(k.home()); err != nil {
		return err
	}
	if s.watch != nil {
		return nil
	}
	var err error
	s.watch, err = watchDevices(func() { k.sendDevicesChanged(s) })
	go k.followShares("what is no TCP", s.stop, func() error {
		if k.send != s {
			return nil
		}
		return s.adapt()
	})
	go k.followUsers(s)
	return err
}

// followUsers has whoever uses a socket be known, once that is loaded: other
// sockets are known by who made them.
func (k *Kernel) followUsers(s *sender) {
	p, err := s.obj.LoadUser()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case p != nil && k.send == s:
		err = errors.Join(err, s.obj.AttachUser(p))
	case p != nil:
		_ = p.Close() // it is not needed any more
	}
	if err != nil && k.send == s {
		k.log.Warn("a datagram socket that came from another program counts as its maker's", "err", err)
	}
}

func (k *Kernel) sendDevicesChanged(s *sender) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.send != s {
		return
	}
	if err := errors.Join(s.ensurePair(), s.followDevices(k.home())); err != nil {
		k.log.Warn("a device is not looked after", "err", err)
	}
}

// home is the daemon's own namespace as a place, nil while nothing that comes in
// is limited there.
func (k *Kernel) home() *place {
	if k.on == nil {
		return nil
	}
	return k.on.places[k.on.home]
}

// sends sets a node's class, or takes it away: after the limit has been changed.
func (k *Kernel) sends(spec enforce.NodeSpec) error {
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
	return errors.Join(k.send.clear(id), k.settleSending())
}

// downSending removes all of it: the limits are lifted already.
func (k *Kernel) downSending() error {
	s := k.send
	if s == nil {
		return nil
	}
	k.send = nil
	var errs []error
	for id := range maps.Clone(s.nodes) {
		errs = append(errs, s.clear(id))
	}
	return errors.Join(append(errs, s.remove(k.home()))...)
}

// countSent adds what waits of the nodes' datagrams.
func (k *Kernel) countSent(list []enforce.NodeStats) error {
	if k.send == nil {
		return nil
	}
	queues, err := k.send.pair.standings()
	if err != nil {
		return err
	}
	for i := range list {
		k.send.countSent(&list[i], queues)
	}
	return nil
}

func (s *sender) countSent(stats *enforce.NodeStats, queues map[uint32]standing) {
	n := s.nodes[stats.ID]
	if n == nil {
		return
	}
	var f bpf.Outflow
	if s.obj.Outflows.Lookup(stats.ID, &f) != nil {
		return // it is just being made or removed
	}
	q := queues[stats.ID]
	stats.Datagrams.QueuedBytes = uint64(q.backlog)
	stats.Datagrams.Dropped.QueueFull, stats.Datagrams.Dropped.Ahead = uint64(q.drops), f.Dropped
	if n.class.rate > 0 {
		stats.Datagrams.DelayNS = uint64(float64(q.backlog) / float64(n.class.rate) * 1e9)
	}
}
