package shaping

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/pacing"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// Kernel limits all traffic: TCP egress by pacing, ingress and non-TCP egress by queues beside it. All methods may be
// called concurrently.
type Kernel struct {
	unchanged             // pacing does this alone
	pacing    pacer       // the queues take part in this
	base      *bpf.Object // the loaded programs and maps of pacing, which those of the queues share
	log       *slog.Logger
	alias     string        // alias of netnice's devices: see netdevice.AliasOf
	preload   bool          // load the objects before a limit needs them
	turnUp    time.Duration // bounds the time of one look at devices: see netdevice.Turn

	mu sync.Mutex
	on *shaper // nil = no limit on ingress is in force

	send   *sender // nil = there are no queues for non-TCP egress
	holds  holds
	ahead  ahead
	follow follow
	drains drains
	marks  marker
	stop   chan struct{}
	closed bool

	backlogs map[uint32]uint64 // bounds of nodes' backlogs, in ns of their rates; the kernel's maps do not hold them

	reserving sync.Mutex // held while a node is made for a socket that has set no rate
}

var _ enforce.Kernel = (*Kernel)(nil)

// Open opens the kernel side. Limits that are in force stay in force throughout.
func Open(opts pacing.Options) (*Kernel, error) {
	k, err := open(opts)
	if errors.Is(err, bpf.ErrLayout) && !opts.Leaving && !opts.Anew {
		opts.Anew = true // only the maps of the queues have another layout
		return open(opts)
	}
	return k, err
}

func open(opts pacing.Options) (*Kernel, error) {
	inner, err := pacing.Open(opts)
	if err != nil {
		return nil, err
	}
	k := &Kernel{unchanged: inner, pacing: inner, base: inner.Object(), log: opts.Logger, preload: opts.Preload, turnUp: netdevice.TurnTimeUp, holds: holds{}, backlogs: map[uint32]uint64{}, stop: make(chan struct{})}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	k.alias, err = netdevice.AliasOf(opts.PinDir)
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

// endFormer removes the queues of another release that this one takes over. Until the daemon sets the limits of that
// release again, ingress and non-TCP egress flow without a limit. To keep that time short, endFormer first loads the
// ingress programs if such limits need them.
func (k *Kernel) endFormer() error {
	if !k.base.Former() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loadAhead(k.base.FormerShapes(), false)
	if early := k.ahead.shaping; early != nil {
		<-early.done
	}
	return errors.Join(k.base.DetachFormerDevices(), queuepair.RemoveEverywhere(k.alias))
}

// resume takes over the state that an earlier process left.
func (k *Kernel) resume() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.base.IsSending() {
		if err := k.startSending(nil); err != nil {
			return err
		}
	}
	if err := k.resumeMeters(); err != nil {
		return err
	}
	if !k.base.IsShaping() {
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
	on, err := newShaper(k.base, obj, k.alias, k.log)
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

// settle attaches the programs to the devices that the present limits need, in every namespace where a limited
// process or socket lives. It removes all programs and devices if no limit is left.
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
		watch, err := netdevice.Watch(func() { k.devicesChanged(on, nil) })
		if err != nil {
			return err
		}
		on.watch = watch
	}
	return on.look()
}

// devicesChanged attaches programs to new devices of a namespace, and detaches them from those that are no longer
// wanted. With nil it restores the pair in the daemon's namespace, and visits the devices of every namespace.
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

// Maintain implements enforce.Events.
func (k *Kernel) Maintain() error {
	err := k.pacing.Maintain()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(err, k.tend())
}

// tend does the regular work. It finds the namespaces that need programs or queues, the present owners of sockets, and
// the rates of ingress classes.
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
		err = errors.Join(err, k.follow.look(k.base))
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
	return errors.Join(err, k.marks.close(), k.dropAhead(), k.pacing.Close())
}

// end ends awaitDatagrams and followSockets, which wait for events of datagrams and sockets.
func (k *Kernel) end() {
	if !k.closed {
		k.closed = true
		close(k.stop)
	}
}
