package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
)

// DefaultBurst is the unused time that a node may make up for, if its limit says nothing else.
const DefaultBurst = 10 * time.Millisecond

// Kernel is a pacing.Kernel that also limits ingress and queues non-TCP egress. All methods may be called
// concurrently.
type Kernel struct {
	*pacing.Kernel
	log     *slog.Logger
	alias   string        // of its devices: see aliasOf
	preload bool          // load the objects before a limit needs them
	turnUp  time.Duration // bounds the time of one look at devices: see turn

	mu sync.Mutex
	on *shaper // nil = there is no limit on ingress

	send   *sender // nil = there are no queues for non-TCP egress
	holds  holds
	ahead  ahead
	follow follow
	drains drains
	marks  marker
	stop   chan struct{}
	closed bool

	backlogs map[uint32]uint64 // bounds of nodes' backlogs, in ns; the kernel's maps do not hold them

	reserving sync.Mutex // held while a node is made for a socket that has set no rate
}

var _ enforce.Kernel = (*Kernel)(nil)

// Open opens the kernel side. Limits that are in force stay in force throughout.
func Open(opts pacing.Options) (*Kernel, error) {
	k, err := open(opts)
	if errors.Is(err, bpf.ErrLayout) && !opts.Leaving && !opts.Anew {
		opts.Anew = true // only maps of the queues have another layout
		return open(opts)
	}
	return k, err
}

func open(opts pacing.Options) (*Kernel, error) {
	inner, err := pacing.Open(opts)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Kernel: inner, log: opts.Logger, preload: opts.Preload, turnUp: turnTimeUp, holds: holds{}, backlogs: map[uint32]uint64{}, stop: make(chan struct{})}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	k.alias, err = aliasOf(k.PinDir())
	if err == nil {
		err = k.endFormer()
	}
	if err == nil {
		err = k.resume()
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	k.mu.Lock()
	k.loadAhead(k.preload, k.preload)
	k.mu.Unlock()
	go k.awaitDatagrams()
	go k.followSockets()
	return k, nil
}

// endFormer removes the queues of another release that is taken over. From here until the daemon sets its limits
// again, its ingress and non-TCP egress flow without a limit. So endFormer loads the programs that these limits
// need first.
func (k *Kernel) endFormer() error {
	if !k.Object().Former() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loadAhead(k.Object().FormerShapes(), false)
	if early := k.ahead.shaping; early != nil {
		<-early.done
	}
	return errors.Join(k.Object().DetachFormerDevices(), removeEverywhere(k.alias))
}

// resume takes over the state that an earlier process left.
func (k *Kernel) resume() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Object().IsSending() {
		if err := k.startSending(nil); err != nil {
			return err
		}
	}
	if err := k.resumeMeters(); err != nil {
		return err
	}
	if !k.Object().IsShaping() {
		return nil
	}
	return k.resumeReceiving()
}

func (k *Kernel) resumeReceiving() error {
	specs, err := k.Nodes()
	if err != nil {
		return err
	}
	if err := k.start(); err != nil {
		return err
	}
	for _, spec := range specs {
		if rate, _ := ceiling(spec); rate != 0 {
			if err := k.on.set(spec); err != nil {
				return err
			}
		}
	}
	return k.settle()
}

// start makes the shaper, unless it exists.
func (k *Kernel) start() error {
	if k.on != nil {
		return nil
	}
	obj, err := k.shapingObject()
	if err != nil {
		return fmt.Errorf("limit what comes in: %w", err)
	}
	on, err := newShaper(k.Object(), obj, k.alias, k.log)
	if err != nil {
		return fmt.Errorf("limit what comes in: %w", err)
	}
	on.changed, on.turnUp = func(p *place) { k.devicesChanged(on, p) }, k.turnUp
	k.on = on
	go k.followShares("what comes in", on.stop, func() error {
		if k.on != on {
			return nil
		}
		return on.adapt()
	})
	return nil
}

// settle attaches the programs to the devices that the present limits need, in every namespace where something
// limited lives. It removes all of it if no limit is left.
func (k *Kernel) settle() error {
	on := k.on
	if on == nil {
		return nil
	}
	if len(on.nodes) == 0 {
		if k.draining() {
			return nil // endDrains calls settle again
		}
		k.on = nil
		err := on.remove()
		k.loadAhead(k.preload, false) // for the next limit
		return err
	}
	if on.watch == nil {
		watch, err := watchDevices(func() { k.devicesChanged(on, nil) })
		if err != nil {
			return err
		}
		on.watch = watch
	}
	return on.look()
}

// devicesChanged looks after the devices of a namespace. With nil it looks after the pair in the daemon's
// namespace, and after the devices of every namespace.
func (k *Kernel) devicesChanged(on *shaper, at *place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.on != on {
		return
	}
	if at == nil {
		if err := on.ensurePair(); err != nil {
			k.log.Warn("the queue of what comes in is not looked after", "err", err)
			return
		}
	}
	for _, p := range on.places {
		if at == nil || at == p {
			p.begin()
		}
	}
}

// SetNode implements enforce.Kernel.
func (k *Kernel) SetNode(spec enforce.NodeSpec) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.setReceiving(spec); err != nil {
		return err
	}
	delete(k.backlogs, spec.ID)
	if spec.BacklogNS != 0 {
		k.backlogs[spec.ID] = spec.BacklogNS
	}
	err := errors.Join(k.setSending(spec), k.meter(spec))
	if spec.DSCP != 0 || k.marks.any() {
		err = errors.Join(err, k.lookAtMarks())
	}
	return err
}

// setReceiving sets the node, and its limit on ingress.
func (k *Kernel) setReceiving(spec enforce.NodeSpec) error {
	rate, _ := ceiling(spec)
	had := k.on != nil && k.on.nodes[spec.ID] != nil
	if rate == 0 && !had {
		return k.Kernel.SetNode(spec)
	}
	if rate == 0 {
		if err := k.Kernel.SetNode(spec); err != nil {
			return err
		}
		return k.lift(spec.ID)
	}
	// The class is there before any packet is sent to it.
	if err := k.start(); err != nil {
		return err
	}
	var before enforce.NodeSpec
	if had {
		before = k.on.nodes[spec.ID].spec
	}
	err := k.on.set(spec)
	if err == nil {
		err = k.Kernel.SetNode(spec)
	}
	if err != nil {
		if had {
			return errors.Join(err, k.on.set(before))
		}
		return errors.Join(err, k.lift(spec.ID))
	}
	if spec.Store != 0 {
		return nil // no address has it, and the devices are looked after for the node of its pool
	}
	if err := k.settle(); err != nil {
		return err
	}
	if err := k.on.brokenFor(spec); err != nil {
		return err
	}
	if had {
		return k.on.visitWindows()
	}
	return k.adopt(spec)
}

// adopt makes the UDP sockets and open connections of running members obey.
func (k *Kernel) adopt(spec enforce.NodeSpec) error {
	var members []uint32
	if spec.Kind == enforce.KindTree {
		var err error
		if members, err = k.Members(spec.ID); err != nil {
			return err
		}
		if members == nil {
			members = []uint32{}
		}
	}
	if err := k.on.obj.AdoptDatagrams(members); err != nil {
		return err
	}
	return k.on.visitWindows()
}

// lift ends the work for a node that no longer limits ingress.
func (k *Kernel) lift(id uint32) error {
	if k.on == nil {
		return nil
	}
	k.drain(id)
	return errors.Join(k.on.release(id), k.on.visitWindows())
}

// Join implements enforce.Kernel.
func (k *Kernel) Join(id uint32, pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Kernel.Join(id, pid); err != nil {
		return err
	}
	if k.on == nil || k.on.nodes[id] == nil {
		return nil
	}
	if err := k.settle(); err != nil { // the process may live in another namespace
		return err
	}
	return k.adopt(k.on.nodes[id].spec)
}

// Leave implements enforce.Kernel.
func (k *Kernel) Leave(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Kernel.Leave(id); err != nil || k.on == nil {
		return err
	}
	return k.on.visitWindows()
}

// RemoveNode implements enforce.Kernel.
func (k *Kernel) RemoveNode(id uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	spec, known := k.Node(id)
	if err := k.Kernel.RemoveNode(id); err != nil {
		return err
	}
	delete(k.backlogs, id)
	err := k.sendsNoMore(id)
	if known {
		err = errors.Join(err, k.unmeter(spec))
	}
	if k.marks.any() {
		err = errors.Join(err, k.lookAtMarks())
	}
	switch {
	case k.on == nil || k.on.nodes[id] == nil:
		return err
	case known && spec.Store != 0: // no window was kept for it
		k.drain(id)
		return errors.Join(err, k.on.release(id))
	}
	return errors.Join(err, k.lift(id))
}

// Maintain implements enforce.Kernel.
func (k *Kernel) Maintain() error {
	err := k.Kernel.Maintain()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(err, k.tend())
}

// tend looks after the queues, and after the places where they are needed.
func (k *Kernel) tend() (err error) {
	if k.marks.any() {
		err = k.lookAtMarks()
	}
	if k.send != nil {
		err = errors.Join(err, k.send.look(k.holds))
	}
	if k.on != nil {
		err = errors.Join(err, k.renew())
	}
	if k.on != nil || k.send != nil {
		err = errors.Join(err, k.follow.look(k.Object()))
	}
	if k.on == nil {
		return err
	}
	err = errors.Join(err, k.on.look())
	if k.on.revisit {
		err = errors.Join(err, k.on.visitWindows())
	}
	return errors.Join(err, k.on.tune())
}

// Close implements enforce.Kernel.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	for id := range k.drains.until {
		err = errors.Join(err, k.discard(id))
	}
	k.drains.until = nil
	if k.on != nil {
		err = errors.Join(err, k.on.close())
		k.on = nil
	}
	if k.send != nil {
		err = errors.Join(err, k.send.close())
		k.send = nil
	}
	k.end()
	return errors.Join(err, k.marks.close(), k.dropAhead(), k.Kernel.Close())
}

// end ends the goroutines that wait for datagrams and sockets.
func (k *Kernel) end() {
	if !k.closed {
		k.closed = true
		close(k.stop)
	}
}

// Down implements enforce.Kernel.
func (k *Kernel) Down() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	if k.send != nil {
		errs = append(errs, k.send.giveBuffersBack())
	}
	errs = append(errs, k.marks.remove())
	if err := errors.Join(k.dropAhead(), k.Kernel.Down()); err != nil {
		return errors.Join(append(errs, err)...)
	}
	k.end()
	if k.on != nil {
		for id := range k.on.nodes { // all at the same time
			errs = append(errs, k.on.empty(id))
		}
	}
	errs = append(errs, k.downSending())
	if k.on == nil {
		return errors.Join(errs...)
	}
	k.on.awaitEmpty()
	errs = append(errs, k.on.visitWindows(), k.on.remove())
	k.on = nil
	return errors.Join(errs...)
}

// Down lifts everything without a daemon.
func Down(opts pacing.Options) error {
	if _, err := os.Stat(opts.PinDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	alias, err := aliasOf(opts.PinDir)
	if err != nil {
		return err
	}
	opts.Beside, opts.Leaving, opts.Preload = true, true, false
	k, err := Open(opts)
	if errors.Is(err, bpf.ErrLayout) {
		return errors.Join(pacing.Down(opts), removeEverywhere(alias))
	}
	if err != nil {
		return err
	}
	return k.Down()
}
