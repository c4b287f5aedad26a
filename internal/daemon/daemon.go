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
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/apiserver"
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
	Homes    func() (map[uint32]string, error) // of users, for their rules; default: of the users who are known
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

	opened func(*Daemon)                             // for tests
	now    func() time.Time                          // for tests
	fault  func(path string, takesNoRoom bool) error // for tests: why a file of the state cannot be written or removed
	atHome func(uid uint32)                          // for tests: a file system that takes its time
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
	if o.Identity.Accounts == nil {
		o.Identity.Accounts = account.Machine()
	}
	if o.Homes == nil {
		o.Homes = func() (map[uint32]string, error) { return o.Identity.Accounts.Homes(), nil }
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
	queues   readyQueues
	eachMet  chan struct{} // addresses are met, or what is wanted of them changed
	whys     askers
	adopted  int // limits that the start took over
	setAgain int // and set again
	// admins is the group whose members may do what root may, nil = none, or it is not known yet.
	admins atomic.Pointer[uint32]

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
	damaged      *damaged // the file of the limits that this daemon found, nil = it was whole
	isDown       bool     // Down was called; nothing may be set any more
	headcount    headcount
	subordinates subordinates
	unknown      history // of traffic whose owner is unknown
	noticed      noticed

	besides   map[string]*damaged // other files that were damaged, by path; each is guarded as what is in it
	unwritten unwritten
	onDisk    writtenFiles
	folder    stateFolder
	at        atomic.Pointer[endpoint] // where callers come to
	runLock   *lock                    // of the socket; once it serves, of keepHouse alone, as the next
	stateLock *lock

	lineDevice atomic.Pointer[lineDevice] // see learnLine

	inflight atomic.Int64
	lastBusy atomic.Int64 // ns since started
	hadNodes atomic.Bool

	check chan struct{} // a watched process has ended
	born  chan struct{} // a limit or a share was set on a process, which may run another program soon
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
	d.runLock, d.stateLock = held, state
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
	resolver, err := identity.New(opts.Identity)
	if err != nil {
		return nil, err
	}
	boot, err := resolver.BootID()
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	saved, err := loadState(opts.StateDir, boot)
	if err != nil {
		return nil, err
	}
	removeUnfinished(opts.StateDir)
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
		besides: make(map[string]*damaged),
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
	d.rules.users = make(map[uint32]*book)
	d.rules.homes.hanging, d.rules.homes.told = make(map[uint32]*homeLook), make(map[uint32]homeTold)
	if saved != nil && saved.damage != nil {
		d.damaged = d.foundDamaged(d.statePath(), saved.damage)
	}
	d.readSubordinates()
	d.admins.Store(d.adminGroup(ctx))
	if err := errors.Join(kernel.SetAdminGroup(d.admins.Load()), d.adoptSystem(), d.adopt(ctx, saved), d.adoptPowers(ctx), d.adoptAdapts(saved == nil || saved.Version >= metVersion)); err != nil {
		d.stopWatching()
		return nil, errors.Join(err, kernel.Close())
	}
	if len(d.nodes) == 0 {
		d.noticed.drops = make(map[dropKey]dropSeen) // what is dropped is new
	}
	return d, nil
}

func (d *Daemon) down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isDown
}

// stopWatching lets go of the processes; their nodes stay.
func (d *Daemon) stopWatching() {
	d.stopWatchingPowers()
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
