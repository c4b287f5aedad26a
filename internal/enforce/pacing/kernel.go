// Package pacing enforces limits on TCP egress. It keeps the maps of the kernel object in step with the nodes that
// it is given, and adopts processes and connections that exist already. It decides nothing about limits and never
// talks to users.
package pacing

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

const (
	// firstVirtualTime keeps the differences of a new clock's tags positive.
	firstVirtualTime = 1 << 40
	// A class outlives its clock. The generation in the tags tells a class of an earlier node of the same number:
	// such a class owes nothing to the new node.
	generationShift = 56
)

// virtualTimeOf returns the virtual time at which the clock of a new node begins.
func virtualTimeOf(generation uint32) uint64 {
	return firstVirtualTime + uint64(generation)<<generationShift
}

// Options say where the kernel state lives, and how Open behaves.
type Options struct {
	PinDir     string // folder in a bpffs
	CgroupRoot string // mount point of cgroup v2
	Beside     bool   // come up beside another netnice: for tests
	Leaving    bool   // comes up only to lift everything: takes over nothing of another release
	Anew       bool   // Open sets the pinned limits again, as it does with those of another release
	Preload    bool   // load the programs that limits may need, before a limit does
	// StartGuard starts a guard. nil means no guard, for tests.
	StartGuard func() (Guard, error)
	Logger     *slog.Logger
}

// UpError says why Open refuses to come up beside another netnice.
type UpError = bpf.UpError

// InUseError says which folder another netnice has locked.
type InUseError = bpf.InUseError

// Kernel is the kernel side of limits on TCP egress. All methods may be called concurrently.
type Kernel struct {
	opts Options
	mu   sync.Mutex
	obj  *bpf.Object
	nodeTables
	optionRates
	deferredChunks
	userRanges
	nearby    string // path of the network namespace to visit first, if any
	epoch     uint32
	former    map[uint32]bpf.FormerTree // trees of another release: see former.go
	to        destinations
	cover     cover
	guard     Guard // nil = none yet
	datagrams datagrams
	execs     execs
	requests  requests
	unmarked  uint64 // forks without a mark so far: see unmarked.go
	going     bool   // Down has begun: the nodes are being removed
	leaving   bool   // Close has begun: no daemon acts on the events of sockets any more
	eventLoops
}

// nodeTables holds the nodes, and what is known of them and their connections.
type nodeTables struct {
	nodes map[uint32]bpf.Node // the nodes in use
	lost  map[uint32]bool     // nodes that were in no pool and had no address at the last look
	// processes are member counts of the last Stats, or of a later adoption.
	processes map[uint32]int
	fixed     map[uint64]bool       // cookies of connections that have a rate in FixedRates
	noClock   map[bpf.ClockKey]bool // clocks that are known not to exist
}

// optionRates says which sockets have limits by options: see rates.go and sockets.go.
type optionRates struct {
	rates      bool      // some socket has a rate of its own
	rateLooked time.Time // the time of the last search for a socket with a rate
	lastSocket uint32    // number of the node that was made last for a socket
	// sockets receives a value when sockets that need a node may have come or gone.
	sockets chan struct{}
}

// deferredChunks is what watchHeld acts on: see held.go.
type deferredChunks struct {
	held     chan struct{} // receives a value when a chunk is deferred
	heldDone chan struct{}
	holding  atomic.Bool // some chunk was deferred when watchHeld looked last
	// limitsChanged asks watchHeld to visit all deferred chunks.
	limitsChanged atomic.Bool
}

// userRanges are the user ids that count as another user's.
type userRanges struct {
	ranges       []enforce.Subordinates
	subordinates uint32 // number of entries of the subordinates map in the kernel
}

// eventLoops read events of the kernel until stop is closed.
type eventLoops struct {
	reader *ringbuf.Reader
	events chan struct{}
	done   chan struct{}
	stop   chan struct{}
}

// Open loads the kernel object, takes over the state that is pinned already, and attaches the hooks that this state
// needs. Limits that are in force stay in force throughout.
func Open(opts Options) (*Kernel, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	where := bpf.Options{PinDir: opts.PinDir, CgroupRoot: opts.CgroupRoot, Logger: opts.Logger}
	if !opts.Beside {
		entered, err := bpf.Enter(where)
		if err != nil {
			return nil, err
		}
		defer entered.Close() // the hooks are attached then, so the next netnice sees them
	}
	var obj *bpf.Object
	err := bpf.ErrLayout
	if !opts.Anew {
		obj, err = bpf.Load(where)
	}
	if errors.Is(err, bpf.ErrLayout) && !opts.Leaving {
		opts.Logger.Info("another release's limits hold; they are set anew", "pins", opts.PinDir)
		obj, err = bpf.LoadAnew(where)
	}
	if err != nil {
		return nil, err
	}
	k := &Kernel{
		opts: opts, obj: obj,
		nodeTables: nodeTables{
			nodes: map[uint32]bpf.Node{}, lost: map[uint32]bool{}, processes: map[uint32]int{}, fixed: map[uint64]bool{},
			noClock: map[bpf.ClockKey]bool{},
		},
		optionRates:    optionRates{sockets: make(chan struct{}, 1)},
		deferredChunks: deferredChunks{held: make(chan struct{}, 1), heldDone: make(chan struct{})},
		eventLoops:     eventLoops{events: make(chan struct{}, 1), done: make(chan struct{}), stop: make(chan struct{})},
		datagrams:      newDatagrams(), execs: newExecs(),
	}
	if err := k.start(); err != nil {
		_ = obj.Close()
		return nil, err
	}
	return k, nil
}

func (k *Kernel) start() error {
	if err := errors.Join(k.readNodes(), k.readDestinations(), k.readFixed()); err != nil {
		return err
	}
	if err := k.obj.Attach(true); err != nil {
		return err
	}
	if len(k.nodes) > 0 {
		if err := k.obj.Attach(false); err != nil {
			return err
		}
		if len(k.to.uses) > 0 {
			if err := k.obj.AttachDestinations(true); err != nil {
				return err
			}
		}
		k.cover.stale = true
		if err := k.coverAnew(); err != nil {
			return err
		}
	}
	r, err := ringbuf.NewReader(k.obj.Events)
	if err != nil {
		return fmt.Errorf("open the event buffer: %w", err)
	}
	k.reader = r
	k.carryTrees()
	if err := errors.Join(k.carryRates(), k.followRates()); err != nil {
		return errors.Join(err, r.Close())
	}
	if len(k.to.prefixes) > 0 {
		k.epoch++ // an earlier daemon may have been killed after it changed the prefixes and before it changed the epoch
	}
	if err := k.writePolicy(); err != nil { // tells the datapath that a daemon is here
		return errors.Join(err, r.Close())
	}
	if err := k.startRequests(); err != nil {
		return errors.Join(err, r.Close())
	}
	k.held <- struct{}{} // chunks that an earlier daemon left deferred
	k.askForSockets()
	go k.watchHeld()
	go k.wait()
	return nil
}

// wait turns events of the kernel into one pending value. It handles the rates of sockets itself, because the first
// such socket waits for that.
func (k *Kernel) wait() {
	defer close(k.done)
	for {
		k.reader.SetDeadline(k.nextRateLook())
		event, err := k.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) || err == nil && isEvent(event.RawSample, bpf.EventRate) {
			if err := k.followRates(); err != nil {
				k.opts.Logger.Warn("the first segments of sockets with a rate are not held", "err", err)
			}
			k.askForSockets()
			continue
		}
		if err != nil {
			return
		}
		if cgroup, ok := bpf.CoverEvent(event.RawSample); ok {
			if err := k.follow(cgroup); err != nil {
				k.opts.Logger.Warn("the first segments of a limited process are not held", "err", err)
			}
			continue
		}
		if wanted, ok := bpf.QueueEvent(event.RawSample); ok {
			k.datagrams.ask(wanted)
			continue
		}
		if key, ok := bpf.GateEvent(event.RawSample); ok {
			k.datagrams.moved(key)
			continue
		}
		wake := k.events
		if isEvent(event.RawSample, bpf.EventHeld) {
			wake = k.held
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Events implements enforce.Events.
func (k *Kernel) Events() <-chan struct{} { return k.events }

func (k *Kernel) readNodes() error {
	var policy bpf.Policy
	if err := k.obj.Policy.Lookup(uint32(0), &policy); err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	k.epoch, k.cover.id, k.datagrams.epoch = policy.Epoch, policy.Cover, policy.Queues
	k.subordinates = policy.Subordinates
	k.rates = policy.Kinds&(1<<bpf.KindSocket) != 0
	var index uint32
	var n bpf.Node
	it := k.obj.Nodes.Iterate()
	for it.Next(&index, &n) {
		if n.Kind != 0 && n.Flags&bpf.NodeLive != 0 {
			k.nodes[index] = n
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the nodes: %w", err)
	}
	return nil
}

// Nodes implements enforce.Nodes.
func (k *Kernel) Nodes() ([]enforce.NodeSpec, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]enforce.NodeSpec, 0, len(k.nodes))
	for id, n := range k.nodes {
		out = append(out, specOf(id, n))
	}
	return out, nil
}

// Node returns one of the nodes in force.
func (k *Kernel) Node(id uint32) (spec enforce.NodeSpec, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, known := k.nodes[id]
	return specOf(id, n), known
}

// Settle implements enforce.Nodes.
func (k *Kernel) Settle() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.obj.Former() {
		return nil
	}
	k.opts.Logger.Info("limits of another release are taken over", "nodes", len(k.nodes))
	// trees and rates that came, or were set, since Open
	err := errors.Join(k.carryLate(), k.carryRates(), k.lookAtRates())
	if k.rates {
		err = errors.Join(err, k.adoptConnections(false)) // while they still carry the previous release's rates
	}
	k.askForSockets()
	return errors.Join(err, k.obj.RemoveFormer())
}

// Attached implements enforce.Programs.
func (k *Kernel) Attached() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.obj.Attached()
}

// ProgramFor describes for people the purpose of an attached program.
func (k *Kernel) ProgramFor(name string) string { return bpf.Purposes()[name] }

// Close does its part of enforce.Kernel. No daemon tracks the processes after it, so Close moves the egress hook to where
// it sees all of them. The next daemon finds it there.
func (k *Kernel) Close() error {
	errs := []error{k.stopWaiting()}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaving = true
	errs = append(errs, k.writePolicy())
	if len(k.nodes) > 0 {
		errs = append(errs, k.coverAll())
	}
	return errors.Join(append(errs, k.obj.Close(), k.endGuard())...)
}

func (k *Kernel) stopWaiting() error {
	err := k.reader.Close()
	close(k.stop)
	<-k.done
	<-k.heldDone
	return errors.Join(err, k.endExecs(), k.endRequests())
}
