// Package daemon keeps what is wanted (nodes, and each owner's wishes on them)
// and makes the kernel's state follow it: at a request, when a process ends or
// a unit restarts, and after a restart of its own. It never touches a packet,
// a map or a program; all of that is behind enforce.Kernel.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/apiserver"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Where a system's daemon keeps its things.
const (
	DefaultSocketPath = "/run/netnice/netnice.sock"
	DefaultStateDir   = "/var/lib/netnice"
)

// Options of Run. OpenKernel is required; what else is zero has a default.
type Options struct {
	SocketPath string // default DefaultSocketPath
	StateDir   string // of state.json; default DefaultStateDir
	RunDir     string // of the lock; default: where the socket is
	// OnDemand makes the daemon lift everything and leave when nobody needs it:
	// IdleAfter after the last limit went, or FirstWait after the start if no
	// limit came.
	OnDemand bool
	Logger   *slog.Logger // default: slog.Default()
	Release  string       // netnice's version, for status
	// OpenKernel opens the kernel side; it is called once the lock is held and
	// the state has been read.
	OpenKernel func() (enforce.Kernel, error)
	Identity   identity.Options

	// ScopeFolder is the folder below the cgroup v2 mount that holds the cgroups
	// made for --scope where systemd does not run; default "netnice".
	ScopeFolder string
	// RulesDir has the administrator's rules, "" = no rules are followed; a daemon on
	// demand follows none.
	RulesDir string
	Homes    func() (map[uint32]string, error) // of users, for their rules; default: of /etc/passwd
	Hangup   <-chan os.Signal                  // asks for a look at the rules
	// AdminGroup is the group whose members may do what root may, "" = none.
	AdminGroup string
	// Subordinates is the file of the user ids that count as another's; default
	// identity.SubordinatesFile.
	Subordinates string

	// LookupNames finds the addresses of a name that a limit is for, NamesEvery so often;
	// default: the machine's resolver, a minute.
	LookupNames func(ctx context.Context, name string) ([]netip.Addr, error)
	NamesEvery  time.Duration

	// OpenProcessors finds how the machine divides its processors; default: cpu.Find.
	OpenProcessors func(cpu.Scopes) (Processors, error)

	// OpenPath opens the path to a host, for probes; default: the network.
	OpenPath func(context.Context, PathConfig) (Path, error)

	// AtBoot says what to do for a daemon to be started at boot, "" if one is; default: asks systemd's folders.
	AtBoot func() string

	Tick      time.Duration // between looks at the kernel; default 1 s
	IdleAfter time.Duration // default 1 s
	FirstWait time.Duration // default 10 s

	opened func(*Daemon)    // for tests
	now    func() time.Time // for tests
}

func (o *Options) fill() error {
	if o.OpenKernel == nil {
		return errors.New("daemon: no OpenKernel given")
	}
	text := func(to *string, def string) {
		if *to == "" {
			*to = def
		}
	}
	span := func(to *time.Duration, def time.Duration) {
		if *to <= 0 {
			*to = def
		}
	}
	text(&o.SocketPath, DefaultSocketPath)
	text(&o.StateDir, DefaultStateDir)
	text(&o.RunDir, filepath.Dir(o.SocketPath))
	text(&o.ScopeFolder, "netnice")
	text(&o.Subordinates, identity.SubordinatesFile)
	if o.Homes == nil {
		o.Homes = func() (map[uint32]string, error) { return identity.Homes("/etc/passwd") }
	}
	if o.OpenProcessors == nil {
		o.OpenProcessors = func(s cpu.Scopes) (Processors, error) { return cpu.Find(s) }
	}
	if o.OpenPath == nil {
		o.OpenPath = openPath
	}
	if o.AtBoot == nil {
		o.AtBoot = func() string { return atBoot(systemdFolder, enabledUnits) }
	}
	if o.LookupNames == nil {
		o.LookupNames = lookupNames
	}
	span(&o.NamesEvery, namesEvery)
	span(&o.Tick, time.Second)
	span(&o.IdleAfter, time.Second)
	span(&o.FirstWait, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

// Daemon is the running daemon and the API server's Backend.
type Daemon struct {
	opts     Options
	log      *slog.Logger
	kernel   enforce.Kernel
	resolver *identity.Resolver
	boot     string
	pid      int // its own
	started  time.Time
	sampler  sampler
	rules    ruleBook
	events   hub
	powers   powers
	adapts   adapts
	eachMet  chan struct{} // addresses are met, or what is wanted of them changed
	whys     askers
	adopted  int     // limits that the start took over
	setAgain int     // and set again
	admins   *uint32 // the group whose members may do what root may, nil = none

	mu           sync.Mutex // guards what follows
	nodes        map[uint32]*node
	stock        map[uint32]enforce.NodeSpec // nodes in store for addresses, by their ids: stock.go
	nextID       uint32
	destined     destined
	commanded    commanded
	names        map[string]found // that limits are for
	lists        map[listKey][]netip.Prefix
	system       machineWide
	dirty        bool // the state file is behind
	file         stateFile
	isDown       bool // Down was called; nothing may be set any more
	headcount    headcount
	subordinates subordinates
	unknown      history // of traffic whose owner is unknown
	noticed      noticed

	inflight atomic.Int64
	lastBusy atomic.Int64 // ns since started
	hadNodes atomic.Bool

	check chan struct{} // a watched process has ended
	born  chan struct{} // a limit was set on a process, which may run another program soon
	downc chan struct{} // closed when isDown gets true
}

var _ apiserver.Backend = (*Daemon)(nil)

// Run is the daemon's life: it returns when ctx ends (which leaves the limits
// in force, unless the daemon is on demand), when a caller asked for Down, or
// when an on-demand daemon is not needed any more. Errors before it is ready
// leave everything as it was; those with a remedy are *api.Error, and only that
// of a daemon that runs already has the code conflict.
func Run(ctx context.Context, opts Options) (err error) {
	if err := opts.fill(); err != nil {
		return err
	}
	held, err := acquire(opts.RunDir, lockName(opts.SocketPath))
	if err != nil {
		return err
	}
	clean := true
	defer func() { err = errors.Join(err, held.release(clean)) }()
	state, err := acquireDir(opts.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.release(clean)) }()

	d, err := open(ctx, opts)
	if err != nil {
		return err
	}
	if opts.opened != nil {
		opts.opened(d)
	}
	why, err := d.life(ctx)
	d.tell(sdnotify.SdNotifyStopping)
	d.stopWatching()
	clean = why != leftBySignal
	switch {
	case why == leftByDown:
	case why == leftIdle || opts.OnDemand && (err == nil || d.holds() == 0):
		clean = true
		err = errors.Join(err, d.bringDown())
		d.log.Info("netnice leaves; no limit is in force")
	default:
		d.log.Info("netnice leaves; the limits stay in force until it is back, or until: netnice down", "nodes", d.count(), "powers", d.powerCount())
	}
	if d.down() {
		return err // Down closed the kernel side too
	}
	return errors.Join(err, d.kernel.Close())
}

// open reads the state, opens the kernel side and makes the two agree.
func open(ctx context.Context, opts Options) (*Daemon, error) {
	saved, err := loadState(opts.StateDir)
	if err != nil {
		return nil, err
	}
	system, err := loadSystem(opts.StateDir)
	if err != nil {
		return nil, err
	}
	resolver, err := identity.New(opts.Identity)
	if err != nil {
		return nil, err
	}
	boot, err := resolver.BootID()
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	kernel, err := opts.OpenKernel()
	if err != nil {
		return nil, fmt.Errorf("open the kernel side: %w", err)
	}
	d := &Daemon{
		opts: opts, log: opts.Logger, kernel: kernel, resolver: resolver, boot: boot,
		pid:     os.Getpid(),
		started: time.Now(),
		nodes:   make(map[uint32]*node),
		stock:   make(map[uint32]enforce.NodeSpec),
		names:   make(map[string]found),
		lists:   make(map[listKey][]netip.Prefix),
		system:  system,
		nextID:  1,
		check:   make(chan struct{}, 1),
		born:    make(chan struct{}, 1),
		downc:   make(chan struct{}),
	}
	d.sampler.kernel = kernel
	d.eachMet = make(chan struct{}, 1)
	d.powers.list, d.powers.extras = make(map[int]*powered), make(chan struct{}, 1)
	d.adapts.list, d.adapts.areas, d.adapts.wake = make(map[adaptKey]*adapted), make(map[areaKey]*adaptArea), make(chan struct{}, 1)
	d.adapts.home, _ = netnamespace.Of("self") // 0: no area of this namespace finds its hosts
	d.rules.users, d.rules.slow = make(map[uint32]*book), make(map[uint32]chan struct{})
	d.readSubordinates()
	d.admins = d.adminGroup()
	if err := errors.Join(kernel.SetAdminGroup(d.admins), d.adopt(ctx, saved), d.adoptPowers(ctx), d.adoptAdapts()); err != nil {
		d.stopWatching()
		return nil, errors.Join(err, kernel.Close())
	}
	if len(d.nodes) == 0 {
		d.noticed.drops = make(map[dropKey]dropSeen) // what is dropped is new
	}
	return d, nil
}

// departure says why the daemon stopped serving.
type departure int

const (
	leftBySignal departure = iota
	leftByDown
	leftIdle
)

// life serves and keeps house until there is a reason to leave.
func (d *Daemon) life(ctx context.Context) (departure, error) {
	house, cancel := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	keepers.Go(func() { d.keepHouse(house) })
	keepers.Go(func() { d.keepArmed(house) })
	keepers.Go(func() { d.keepRequests(house) })
	keepers.Go(func() { d.keepPowers(house) })
	keepers.Go(func() { d.keepAdapts(house) })
	keepers.Go(func() { d.keepEach(house) })
	keepers.Go(func() { d.keepNames(house) })
	if d.followsRules() {
		keepers.Go(func() { d.keepRules(house) })
	}
	defer keepers.Wait()
	defer cancel()
	for {
		why, err := d.serve(ctx)
		// A request that was under way while the socket closed may have set a
		// limit: then there is something to stay for.
		if err != nil || why != leftIdle || d.holds() == 0 {
			return why, err
		}
	}
}

// serve answers requests until there is a reason to stop.
func (d *Daemon) serve(ctx context.Context) (departure, error) {
	listener, passed, err := d.listener()
	if err != nil {
		return leftBySignal, err
	}
	hide := func(path string) error {
		if passed {
			return nil // who opened it removes it
		}
		return hide(path)
	}
	server := apiserver.NewServer(d, d.log)
	server.Handler = auth.Tracked(apiserver.Limited(d.counted(server.Handler), d.countsAs))
	d.events.begin()
	server.RegisterOnShutdown(d.events.end)
	peers := auth.Options{Group: d.admins, CountsAs: d.countsAs}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(auth.NewListener(listener, peers)) }()
	d.tell(sdnotify.SdNotifyReady)
	d.log.Info("netnice is ready", "socket", d.opts.SocketPath, "nodes", d.count(), "on_demand", d.opts.OnDemand)

	idle := time.NewTicker(max(min(d.opts.IdleAfter/5, d.opts.Tick), time.Millisecond))
	defer idle.Stop()
	why := leftBySignal
wait:
	for {
		select {
		case <-ctx.Done():
			break wait
		case <-d.downc:
			why = leftByDown
			break wait
		case <-idle.C:
			if d.idle() {
				why = leftIdle
				break wait
			}
		case err := <-failed:
			return leftBySignal, errors.Join(fmt.Errorf("serve %s: %w", d.opts.SocketPath, err), hide(d.opts.SocketPath))
		}
	}
	hidden := hide(d.opts.SocketPath)
	d.events.tell(everybody(), api.Event{Type: api.EventDaemonLeaves, PID: d.pid, LimitsStay: why == leftBySignal && !d.opts.OnDemand})
	const patience = 5 * time.Second
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(end); err != nil {
		_ = server.Close() // a caller that does not read its answer
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return why, errors.Join(fmt.Errorf("serve %s: %w", d.opts.SocketPath, err), hidden)
	}
	return why, hidden
}

// counted notes when a request is under way.
func (d *Daemon) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == apiserver.EventsPath {
			next.ServeHTTP(w, r) // who only listens keeps nobody here
			return
		}
		d.inflight.Add(1)
		defer func() {
			d.lastBusy.Store(int64(time.Since(d.started)))
			d.inflight.Add(-1)
		}()
		next.ServeHTTP(w, r)
	})
}

// idle reports whether an on-demand daemon may leave.
func (d *Daemon) idle() bool {
	if !d.opts.OnDemand {
		return false
	}
	if d.inflight.Load() > 0 || d.holds() > 0 {
		d.lastBusy.Store(int64(time.Since(d.started)))
		return false
	}
	if !d.hadNodes.Load() && time.Since(d.started) < d.opts.FirstWait {
		return false
	}
	return time.Since(d.started)-time.Duration(d.lastBusy.Load()) >= d.opts.IdleAfter
}

func (d *Daemon) down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isDown
}

// stopWatching lets go of the processes; their nodes stay.
func (d *Daemon) stopWatching() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nodes {
		n.watch.stop()
	}
}

func (d *Daemon) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.nodes)
}

// holds is how much there is that a daemon stays for.
func (d *Daemon) holds() int { return d.count() + d.powerCount() }

// bringDown lifts everything and removes what was stored.
func (d *Daemon) bringDown() (err error) {
	if err := d.liftPowers(context.Background()); err != nil {
		return err
	}
	defer func() { // without d.mu, which is taken after that of the powers
		if err != nil && !d.down() {
			d.admitPowers()
		}
	}()
	if err := d.forgetAdapts(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return nil
	}
	if err := d.kernel.Down(); err != nil {
		return fmt.Errorf("take the kernel side down: %w", err)
	}
	d.isDown = true
	close(d.downc)
	for id, n := range d.nodes {
		n.watch.stop()
		d.leaveScope(n)
		delete(d.nodes, id)
	}
	d.dropLists()
	d.sweepScopes()
	return d.forget()
}

// Status implements apiserver.Backend.
func (d *Daemon) Status(context.Context) (api.Status, error) {
	counters, err := d.kernel.Counters()
	if err != nil {
		return api.Status{}, fmt.Errorf("read the kernel side's counters: %w", err)
	}
	now, err := d.sampler.stats()
	if err != nil {
		return api.Status{}, err
	}
	d.mu.Lock()
	unknown, meterOff := d.renderUnknown(now), d.system.InputMeterOff
	d.mu.Unlock()
	return api.Status{
		Version: api.Version, Release: d.opts.Release, PID: os.Getpid(), Since: d.started,
		OnDemand: d.opts.OnDemand, Kernel: d.resolver.KernelRelease(), Nodes: d.count(), Powers: d.powerCount(),
		InputMeterOff: meterOff, Programs: d.programs(), Unknown: unknown, Counters: counters,
	}, nil
}
