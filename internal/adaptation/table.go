// Package adaptation keeps the limits whose rate follows what a path carries: which hosts and areas are followed and how,
// the measurement that a limit begins with, the control law that runs for each host (package adapt), and their state
// file. Each limit is an administrator's limit on a destination, like any other. The table sets, changes and lifts it as
// a client would. It does not know the other limits.
package adaptation

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

const (
	mostHosts     = 64
	mostAddresses = 8 // addresses of one name
)

// Host is the program that has the limits on traffic and the state folder. The table calls it with its own lock held.
// These methods take the lock of the limits, so that one is taken inside the table's. The host must not call the table
// while it holds a lock that these methods take.
type Host interface {
	// Save writes the state file, or removes it if no path is followed. The host notes a failure, and calls Rewrite later.
	Save(isEmpty bool, content *Saved)
	// Load reads the state file into content. It returns false if there is no usable file.
	Load(content *Saved) (found bool, err error)
	// Unwritten returns a warning if the last change is not in the file; lifts says that the change lifted a limit.
	Unwritten(lifts bool) []string

	// SetLimit sets the administrator's limit on what is sent to a destination. met says that nobody has named the
	// destination: it is an address to which a program has sent.
	SetLimit(ctx context.Context, to api.Subject, bytesPerSec uint64, met bool) error
	// LiftLimit lifts all limits on a destination. It is no error if there is none.
	LiftLimit(ctx context.Context, to api.Subject) error
	// LimitOn returns the node and the rate of the administrator's limit on what is sent to a destination. It returns
	// false if there is none.
	LimitOn(to api.Subject) (node uint32, bytesPerSec uint64, ok bool)
	// SetRate changes the rate of such a limit in the kernel, and with write also in the file of the limits. The error
	// is ErrLifted if the node does not have that limit any more.
	SetRate(node uint32, to api.Subject, bytesPerSec uint64, write bool) error
	// BoundBacklog bounds how long traffic waits at such a limit, in ns; 0 = no bound. It does nothing if there is none.
	BoundBacklog(to api.Subject, ns uint64) error
	// LookUp returns the addresses of a host name.
	LookUp(ctx context.Context, name string) ([]netip.Addr, error)
}

// Paths is what the table needs from the kernel side; enforce.Kernel has it.
type Paths interface {
	SentBytes(node uint32) (uint64, error)
	Peers(node uint32) ([]enforce.Peer, error)
	Probes(fd int) error
	Gate(node uint32, every time.Duration) (enforce.Gate, error)
	HoldQueue(netns uint32) (release func(), err error)
}

// Options are what a table needs.
type Options struct {
	Log    *slog.Logger
	Kernel Paths
	Host   Host
	// OpenPath opens the path to a host, for probes.
	OpenPath func(context.Context, hostpath.Config) (hostpath.Path, error)
	// FollowsRules says that the host calls LearnRules: an area of a rule ends with the rule, and not by a command.
	FollowsRules bool
}

// Table holds all paths that are followed.
type Table struct {
	log          *slog.Logger
	kernel       Paths
	host         Host
	openPath     func(context.Context, hostpath.Config) (hostpath.Path, error)
	followsRules bool
	home         uint32        // the process's own network namespace
	wake         chan struct{} // there are new paths to follow

	mu     sync.Mutex // guards the fields below
	list   map[entryKey]*entry
	areas  map[areaKey]*area
	ruled  ruledAreas
	refuse error // the answer to requests after Halt; nil = they are accepted
}

// New returns a table without paths.
func New(o Options) *Table {
	t := &Table{
		log: o.Log, kernel: o.Kernel, host: o.Host, openPath: o.OpenPath, followsRules: o.FollowsRules,
		wake: make(chan struct{}, 1), list: make(map[entryKey]*entry), areas: make(map[areaKey]*area),
	}
	t.home, _ = netnamespace.Of("self") // if it fails, 0: no area of this namespace finds its hosts
	return t
}

// entryKey is an address and the network namespace that the path to it begins in; 0 = the daemon's.
type entryKey struct {
	address netip.Addr
	netns   uint32
}

// entry is one address whose path is followed.
type entry struct {
	Host    string     `json:"host"`
	Address netip.Addr `json:"address"`
	Netns   uint32     `json:"netns,omitempty"`
	settings
	Since time.Time `json:"since"`
	Area  string    `json:"area,omitempty"` // the area that has found it

	busyAt time.Time     // time of the last traffic to a host of an area
	path   hostpath.Path // nil until it is followed
	unhold func()        // releases the queue for its traffic; nil = it is not held
	end    context.CancelFunc
	ended  chan struct{}
	first  hostpath.Measured // measured before the path was followed
	state  adapt.State
	fault  string    // the last fault that was logged
	retry  time.Time // the earliest time of the next attempt
}

func (a *entry) key() entryKey { return entryKey{a.Address, a.Netns} }

// subject is the subject of the limit that follows the path.
func (a *entry) subject() api.Subject {
	s := destination.Selector{Prefixes: []netip.Prefix{netip.PrefixFrom(a.Address, a.Address.BitLen())}}
	if !a.TCP {
		s.Protocol = "udp"
	}
	return s.Subject(api.Subject{})
}

// Set has the path to a host followed, or the paths to the hosts of an area, and changes or ends that. An error with a
// remedy is an *api.Error.
func (t *Table) Set(ctx context.Context, by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	if err := auth.Check(by, auth.Adapt, auth.Target{Subject: api.Subject{ID: req.Host}}); err != nil {
		return answer, err
	}
	if err := check(&req); err != nil {
		return answer, err
	}
	if home, err := netnamespace.Of("self"); err == nil && home == req.Netns {
		req.Netns = 0
	}
	if isArea(req.Host) {
		var err error
		if req.Host, err = parseArea(req.Host); err != nil {
			return answer, err
		}
		if req.Off {
			return t.endArea(ctx, req)
		}
		return t.setArea(ctx, req)
	}
	if req.Off {
		return t.end(ctx, req)
	}
	addresses, err := t.addressesOf(ctx, req.Host)
	if err != nil {
		return answer, err
	}
	var began int
	var failed error
	for _, address := range addresses {
		a := &entry{Host: req.Host, Address: address, Netns: req.Netns, settings: settingsOf(&req), Since: time.Now()}
		if req.DryRun {
			answer.Adapted = append(answer.Adapted, a.api())
			continue
		}
		if err := t.beginSoon(ctx, a); err != nil {
			failed = err
			if len(addresses) > 1 {
				answer.Warnings = append(answer.Warnings, fmt.Sprintf("%s: %v", address, strings.SplitN(err.Error(), "\n", 2)[0]))
			}
			continue
		}
		began++
		answer.Adapted = append(answer.Adapted, t.render(a))
	}
	if began == 0 && failed != nil {
		return api.AdaptList{}, failed
	}
	answer.Changed = began > 0 || req.DryRun
	if began > 0 {
		answer.Warnings = append(answer.Warnings, t.host.Unwritten(false)...)
	}
	return answer, nil
}

// List returns the hosts and areas that are followed. It leaves out hosts that the caller may not see.
func (t *Table) List(by auth.Actor) api.AdaptList {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	for _, a := range t.list {
		if a.addressIsFor(by) {
			list.Adapted = append(list.Adapted, a.api())
		}
	}
	slices.SortFunc(list.Adapted, func(a, b api.Adapted) int { return a.Since.Compare(b.Since) })
	for _, a := range t.areas {
		list.Areas = append(list.Areas, a.api())
	}
	slices.SortFunc(list.Areas, func(a, b api.AdaptArea) int { return a.Since.Compare(b.Since) })
	return list
}

// addressIsFor reports whether an actor may see the address of a path that is followed.
func (a *entry) addressIsFor(by auth.Actor) bool {
	return a.Area == "" || auth.May(by, auth.SeePeers, auth.Target{Subject: a.subject(), Kind: enforce.KindDestination})
}

func (t *Table) render(a *entry) api.Adapted {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a.api()
}

// api returns the path's state for clients. The caller holds t.mu, if others know it.
func (a *entry) api() api.Adapted {
	s := a.state
	out := api.Adapted{
		Host: a.Host, Address: a.Address.String(), Netns: a.Netns, Subject: a.subject(), SharePPM: a.SharePPM, TCP: a.TCP, Since: a.Since, Area: a.Area,
		Mode: string(s.Mode), RateBytesPerSec: uint64(s.Rate), SentBytesPerSec: uint64(s.Sent), CapacityBytesPerSec: uint64(s.Capacity),
		LeastBytesPerSec: a.Least, MostBytesPerSec: a.Most, BacklogNS: a.BacklogNS,
		BaseNS: uint64(s.Base), QueueNS: uint64(max(s.Queue, 0)), AimNS: uint64(s.Aim), WindowPackets: s.Window, ProbesLostPPM: uint32(s.Lost * 1e6),
	}
	if s.Dark {
		out.Mode = "silent"
	}
	if a.path != nil {
		out.By, out.ProbedBytes = a.path.Kind(), a.path.SentBytes()
	}
	return out
}
