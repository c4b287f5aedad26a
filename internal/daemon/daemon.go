// Package daemon holds the desired state (nodes, and each owner's requested limits on them) and makes the kernel's
// state follow it. It does so at a request, when a process ends or a unit restarts, and after a restart of its own. It
// never touches a packet, a map or a program; all of that is behind enforce.Kernel.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
	"github.com/netnice/netnice/internal/apiserver"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/scope"
	"github.com/netnice/netnice/internal/source/destinations"
	"github.com/netnice/netnice/internal/source/groups"
	"github.com/netnice/netnice/internal/source/names"
	"github.com/netnice/netnice/internal/source/peers"
	"github.com/netnice/netnice/internal/source/prefixlists"
	"github.com/netnice/netnice/internal/source/reservations"
	"github.com/netnice/netnice/internal/source/rulefiles"
	"github.com/netnice/netnice/internal/statefile"
)

// The default places of a system's daemon.
const (
	DefaultSocketPath = "/run/netnice/netnice.sock"
	DefaultStateDir   = "/var/lib/netnice"
)

// Options of Run. OpenKernel is required; every other zero value has a default.
type Options struct {
	SocketPath string // default DefaultSocketPath
	StateDir   string // folder of state.json; default DefaultStateDir
	RunDir     string // folder of the lock; default: the folder of the socket
	// OnDemand makes the daemon lift everything and leave when it is not needed any more: IdleAfter after the end of
	// the last limit, or FirstWait after the start if there was no limit.
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
	// RulesDir has the administrator's rules, "" = the daemon follows no rules. A daemon on demand follows none.
	RulesDir string
	Homes    func() (map[uint32]string, error) // home folders by user; default: those of all known users
	Hangup   <-chan os.Signal                  // each signal asks for a reading of the rules
	// AdminGroup is the group whose members have the rights of root, "" = none.
	AdminGroup string
	// Subordinates is the file of subordinate user ids, which count as their owner's; default
	// identity.SubordinatesFile.
	Subordinates string

	// LookupNames finds the addresses of a host name that a limit is for; the daemon calls it each NamesEvery. The
	// defaults are the machine's resolver and a minute.
	LookupNames func(ctx context.Context, name string) ([]netip.Addr, error)
	NamesEvery  time.Duration

	// OpenProcessors finds the machine's mechanism for CPU shares; default: cpu.Find.
	OpenProcessors func(cpu.Scopes) (cpushare.Processors, error)

	// OpenPath opens the path to a host, for probes; default: the network.
	OpenPath func(context.Context, hostpath.Config) (hostpath.Path, error)

	// AtBoot says how to have a daemon started at boot, "" if one is; default: it reads systemd's folders.
	AtBoot func() string

	Tick      time.Duration // between reconciliations with the kernel; default 1 s
	IdleAfter time.Duration // default 1 s
	FirstWait time.Duration // default 10 s

	opened func(*Daemon)                             // for tests
	now    func() time.Time                          // for tests
	fault  func(path string, takesNoRoom bool) error // for tests: makes writing or removing a file of the state fail
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
		o.OpenProcessors = func(s cpu.Scopes) (cpushare.Processors, error) { return cpu.Find(s) }
	}
	if o.OpenPath == nil {
		o.OpenPath = hostpath.Open
	}
	if o.AtBoot == nil {
		o.AtBoot = func() string { return atBoot(systemdFolder, enabledUnits) }
	}
	if o.LookupNames == nil {
		o.LookupNames = names.AskMachine
	}
	span(&o.NamesEvery, names.DefaultEvery)
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
	sources
	thisProcess
	signals
	folders
	activity
	opts       Options
	log        *slog.Logger
	kernel     enforce.Kernel
	resolver   *identity.Resolver
	observe    *observe.Observer
	complaints complaints
	cpuShares  *cpushare.Table
	queues     readyQueues
	atStart    takenOver
	scopes     *scope.Maker // its lock is taken before mu
	// admins is the group whose members have the rights of root; nil = none, or not known yet.
	admins     atomic.Pointer[uint32]
	lineDevice identity.LatestDevice // see learnLine

	mu writersLock // guards desiredState
	desiredState
}

// desiredState holds the requested limits, and what the daemon knows of them.
type desiredState struct {
	nodes        *desired.Table[*node]
	nextID       uint32
	system       machineWide
	file         *desired.File
	isDown       bool // Down was called, and nothing may be set any more
	subordinates subordinates
	unpublished  unpublished
	// isBehind says that there may be a node in the kernel of which the daemon has none: the kernel has refused to take a
	// change back.
	isBehind bool
}

// thisProcess identifies the daemon's process.
type thisProcess struct {
	boot    string // the id of the boot
	pid     int
	started time.Time
}

// folders are the daemon's places in the file system.
type folders struct {
	files  *statefile.Folder        // the state folder
	folder stateFolder              // why the state folder is missing
	at     atomic.Pointer[endpoint] // the socket for callers
	locks  locks                    // while the daemon serves, keepHouse alone uses them
}

// activity says whether a daemon on demand is still needed.
type activity struct {
	inflight atomic.Int64
	lastBusy atomic.Int64 // ns since started
	hadNodes atomic.Bool
}

// signals wake up the loops of the daemon.
type signals struct {
	check chan struct{} // a watched process has ended
	born  chan struct{} // a process that may soon execute another program has a new limit or share
	downc chan struct{} // closed when isDown becomes true
}

// sources are the sources of limits, beside commands for one subject. Each has a file here that implements what it needs.
type sources struct {
	rules        *rulefiles.Source                  // rule_limits.go
	groups       *groups.Source[*transaction]       // group_limits.go
	names        *names.Source                      // name_changes.go
	lists        *prefixlists.Lists                 // destination_limits.go
	destinations *destinations.Source[*transaction] // destination_limits.go
	peers        *peers.Source                      // peer_limits.go
	adaptation   *adaptation.Table                  // adaptation.go
	reservations *reservations.Source               // reservation_limits.go
}

// takenOver counts what the daemon found at its start.
type takenOver struct {
	adopted  int // limits in force
	setAgain int // limits that it set again
	// endedDestinations counts the limits on a destination that ended, because the damaged file did not say which part
	// they were for.
	endedDestinations int
}

var _ apiserver.Backend = (*Daemon)(nil)

// Run is the whole life of a daemon. It returns when ctx ends, when a caller has asked for Down, or when an on-demand
// daemon is not needed any more. The limits stay in force after the end of ctx, unless the daemon is on demand. An
// error before the daemon is ready leaves everything unchanged. Errors with a remedy are *api.Error. The code conflict
// always means that another process, usually a daemon, holds one of the locks.
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
	d.locks = locks{run: held, state: state}
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
		d.log.Info("netnice leaves; the limits stay in force until it is back, or until: netnice down", "nodes", d.count(), "powers", d.cpuShares.Count())
	}
	if d.down() {
		return err // Down closed the kernel side too
	}
	return errors.Join(err, d.kernel.Close())
}

// open reads the state, opens the kernel side and reconciles the two.
func open(ctx context.Context, opts Options) (*Daemon, error) {
	resolver, err := identity.New(opts.Identity)
	if err != nil {
		return nil, err
	}
	boot, err := resolver.BootID()
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	saved, err := desired.Load(opts.StateDir, boot)
	if err != nil {
		return nil, err
	}
	statefile.RemoveUnfinished(opts.StateDir, stateFiles)
	kernel, err := opts.OpenKernel()
	if err != nil {
		return nil, fmt.Errorf("open the kernel side: %w", err)
	}
	d := &Daemon{
		opts: opts, log: opts.Logger, kernel: kernel, resolver: resolver,
		thisProcess: thisProcess{boot: boot, pid: os.Getpid(), started: time.Now()},
		desiredState: desiredState{
			nodes:  desired.NewTable[*node](),
			nextID: 1,
		},
		signals: signals{
			check: make(chan struct{}, 1),
			born:  make(chan struct{}, 1),
			downc: make(chan struct{}),
		},
	}
	d.scopes = scope.New(d.scopeOptions())
	d.files = statefile.New(statefile.Options{Dir: opts.StateDir, Names: stateFiles, Log: d.log, Remedy: d.writeHint, Fault: opts.fault})
	d.file = desired.NewFile(desired.FileOptions{Folder: d.files, BootID: boot, Content: d.content, Log: d.log})
	d.observe = observe.New(observe.Options{
		Log: d.log, Kernel: kernel, Resolver: resolver, Tick: opts.Tick, Leaving: leaving(),
		CPUShares: func() []api.Power { return d.cpuShares.Shown() },
	})
	d.mu.publish = d.publish
	d.cpuShares = cpushare.New(cpushare.Options{
		Log: d.log, Resolver: resolver, BootID: boot, Open: opts.OpenProcessors, Host: cpuShareHost{d},
	})
	d.rules = d.ruleSource()
	d.groups = groups.New(groups.Options[*transaction]{Log: d.log, Kernel: kernel, Resolver: resolver, Host: groupHost{d}})
	d.names = names.New(names.Options{Log: d.log, Host: nameHost{d}, LookUp: opts.LookupNames, Every: opts.NamesEvery})
	d.lists = prefixlists.New(prefixlists.Options{Files: d.files, Changed: d.touchShared, Complain: d.complain})
	d.destinations = destinations.New(destinations.Options[*transaction]{
		AssignmentOptions: destinations.AssignmentOptions{Log: d.log, Kernel: kernel, Names: d.names, Lists: d.lists},
		Resolver:          resolver, Host: destinationHost{d},
	})
	d.peers = d.peerSource()
	d.reservations = reservations.New(reservations.Options{Log: d.log, Kernel: kernel, Host: reservationHost{d}})
	d.adaptation = adaptation.New(adaptation.Options{
		Log: d.log, Kernel: kernel, Host: adaptationHost{d}, OpenPath: opts.OpenPath, FollowsRules: d.rules.Follows(),
	})
	if saved != nil && saved.Damage != nil {
		d.files.FoundDamaged(d.file.Path(), saved.Damage)
	}
	d.readSubordinates()
	d.admins.Store(d.adminGroup(ctx))
	if err := errors.Join(kernel.SetAdminGroup(d.admins.Load()), d.takeOverSystem(), d.takeOver(ctx, saved), d.cpuShares.Adopt(ctx), d.takeOverAdaptation(saved == nil || saved.Version >= desired.MetVersion)); err != nil {
		d.stopWatching()
		return nil, errors.Join(err, kernel.Close())
	}
	d.publishAll()
	if d.cpuShares.Count() > 0 {
		d.hadNodes.Store(true)
	}
	if d.nodes.Len() == 0 {
		d.observe.NoticeDrops()
	}
	return d, nil
}

func (d *Daemon) down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isDown
}

// stopWatching stops watching the processes; their nodes stay.
func (d *Daemon) stopWatching() {
	d.cpuShares.StopWatching()
	d.mu.Lock()
	defer d.mu.Unlock()
	for n := range d.nodes.All() {
		n.watch.Stop()
	}
}

func (d *Daemon) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.nodes.Len()
}

// holds returns the number of limits and shares that a daemon stays for.
func (d *Daemon) holds() int { return d.count() + d.cpuShares.Count() }

func (d *Daemon) now() time.Time {
	if d.opts.now != nil {
		return d.opts.now()
	}
	return time.Now()
}
