package daemon

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/netnice/netnice/internal/netnamespace"
)

// A limit that follows a path is an administrator's limit on that destination, like any other. The daemon adjusts its
// rate all the time to what the path carries.

const (
	adaptShare      = 500_000 // ppm
	adaptShareLeast = 100_000
	adaptLeast      = 1000 // bytes/s
	mostAdapted     = 64
	mostFollowed    = 8 // addresses of one name
	// adaptPatience is for one address. The first answer takes at most eight seconds, with a reflector twice that. The
	// train and the pairs after it each wait for twice a round trip.
	adaptPatience = time.Minute
)

// adaptKey is an address and the network namespace that the path to it begins in; 0 = the daemon's.
type adaptKey struct {
	address netip.Addr
	netns   uint32
}

// adaptHow has the parameters by which a path is followed.
type adaptHow struct {
	SharePPM      uint32 `json:"share_ppm"`
	TCP           bool   `json:"tcp,omitempty"`
	Start         uint64 `json:"start_bytes_per_sec,omitempty"`
	Least         uint64 `json:"least_bytes_per_sec"`
	Most          uint64 `json:"most_bytes_per_sec,omitempty"`
	ReflectorPort uint16 `json:"reflector_port,omitempty"`
	BacklogNS     uint64 `json:"backlog_ns"` // since version 4 of the file
}

func howOf(req *api.AdaptRequest) adaptHow {
	return adaptHow{
		SharePPM: req.SharePPM, TCP: req.TCP, Start: req.StartBytesPerSec,
		Least: req.LeastBytesPerSec, Most: req.MostBytesPerSec, ReflectorPort: req.ReflectorPort,
		BacklogNS: req.BacklogNS,
	}
}

// adapted is one address whose path is followed.
type adapted struct {
	Host    string     `json:"host"`
	Address netip.Addr `json:"address"`
	Netns   uint32     `json:"netns,omitempty"`
	adaptHow
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

func (a *adapted) key() adaptKey { return adaptKey{a.Address, a.Netns} }

// subject is the subject of the limit that follows the path.
func (a *adapted) subject() api.Subject {
	s := destination.Selector{Prefixes: []netip.Prefix{netip.PrefixFrom(a.Address, a.Address.BitLen())}}
	if !a.TCP {
		s.Protocol = "udp"
	}
	return s.Subject(api.Subject{})
}

// adapts are all paths that are followed.
type adapts struct {
	mu     sync.Mutex // guards the fields after it; taken before Daemon.mu where both are
	list   map[adaptKey]*adapted
	areas  map[areaKey]*adaptArea
	ruled  ruledAreas
	home   uint32        // the daemon's network namespace
	wake   chan struct{} // there are new paths to follow
	isDown bool
}

func badAdapt(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: "such as: netnice adapt 192.0.2.7 --share 50%; netnice adapt 192.0.2.7 off"}
}

// SetAdapt implements apiserver.Backend.
func (d *Daemon) SetAdapt(ctx context.Context, by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	if err := auth.Check(by, auth.Adapt, auth.Target{Subject: api.Subject{ID: req.Host}}); err != nil {
		return answer, err
	}
	if err := checkAdapt(&req); err != nil {
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
			return d.endArea(ctx, req)
		}
		return d.setArea(ctx, req)
	}
	if req.Off {
		return d.endAdapt(ctx, req)
	}
	addresses, err := d.addressesOf(ctx, req.Host)
	if err != nil {
		return answer, err
	}
	var began int
	var failed error
	for _, address := range addresses {
		a := &adapted{Host: req.Host, Address: address, Netns: req.Netns, adaptHow: howOf(&req), Since: time.Now()}
		if req.DryRun {
			answer.Adapted = append(answer.Adapted, a.api())
			continue
		}
		if err := d.beginAdaptSoon(ctx, a); err != nil {
			failed = err
			if len(addresses) > 1 {
				answer.Warnings = append(answer.Warnings, fmt.Sprintf("%s: %v", address, strings.SplitN(err.Error(), "\n", 2)[0]))
			}
			continue
		}
		began++
		answer.Adapted = append(answer.Adapted, d.renderAdapted(a))
	}
	if began == 0 && failed != nil {
		return api.AdaptList{}, failed
	}
	answer.Changed = began > 0 || req.DryRun
	if began > 0 {
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.adaptPath(), false)...)
	}
	return answer, nil
}

// checkAdapt refuses a request that makes no sense, and fills in missing values.
func checkAdapt(req *api.AdaptRequest) error {
	if req.Host == "" || len(req.Host) > 253 {
		return badAdapt("no host is named")
	}
	if req.Off {
		return nil
	}
	fillAdapt(req)
	switch {
	case req.SharePPM < adaptShareLeast || req.SharePPM > 1_000_000:
		return badAdapt("a share of %g%% cannot be kept: write 10%% to 100%%", float64(req.SharePPM)/10_000)
	case req.MostBytesPerSec != 0 && req.MostBytesPerSec < req.LeastBytesPerSec:
		return badAdapt("at most %d bytes/s is less than at least %d", req.MostBytesPerSec, req.LeastBytesPerSec)
	case req.BacklogNS < adaptBacklogLeast || req.BacklogNS > adaptBacklogMost:
		return badAdapt("a backlog of %v cannot be kept: write 10ms to 1m", time.Duration(min(req.BacklogNS, 1<<62)))
	}
	return nil
}

// fillAdapt replaces missing values by the defaults.
func fillAdapt(req *api.AdaptRequest) {
	if req.SharePPM == 0 {
		req.SharePPM = adaptShare
	}
	if req.BacklogNS == 0 {
		req.BacklogNS = adaptBacklog
	}
	if req.LeastBytesPerSec == 0 {
		req.LeastBytesPerSec = adaptLeast
		if req.MostBytesPerSec != 0 {
			req.LeastBytesPerSec = min(adaptLeast, req.MostBytesPerSec)
		}
	}
}

// addressesOf returns the addresses of a host, by the resolver of the machine.
func (d *Daemon) addressesOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.Unmap()
		if a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() {
			return nil, badAdapt("%s is no address of another host", host)
		}
		return []netip.Addr{a}, nil
	}
	known, err := d.learnNames(ctx, []string{host})
	if err != nil {
		return nil, err
	}
	list := known[host].addresses
	return list[:min(len(list), mostFollowed)], nil
}

// namespacePath returns the file of a network namespace, "" for the daemon's own.
func namespacePath(netns uint32) (string, error) {
	if netns == 0 {
		return "", nil
	}
	path := netnamespace.PathOf(netns)
	if path == "" {
		return "", &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no network namespace %d is found", netns), Hint: "a process has to be in it, or it has to have a name: ip netns"}
	}
	return path, nil
}

// openPath opens the path to an address.
func (d *Daemon) openPath(ctx context.Context, a *adapted) (hostpath.Path, error) {
	namespace, err := namespacePath(a.Netns)
	if err != nil {
		return nil, err
	}
	return d.opts.OpenPath(ctx, hostpath.Config{To: a.Address, Port: a.ReflectorPort, Namespace: namespace, Prepare: d.kernel.Probes})
}

// beginAdaptSoon is beginAdapt with a bound on the time that it takes.
func (d *Daemon) beginAdaptSoon(ctx context.Context, a *adapted) error {
	ctx, cancel := context.WithTimeout(ctx, adaptPatience)
	defer cancel()
	return d.beginAdapt(ctx, a)
}

// beginAdapt measures the path, sets the limit, and has the path followed. If the path is followed already, that
// continues with the new parameters.
func (d *Daemon) beginAdapt(ctx context.Context, a *adapted) error {
	path, err := d.openPath(ctx, a)
	if err != nil {
		return err
	}
	rate, err := d.firstRate(ctx, a, path)
	if err != nil {
		return errors.Join(err, path.Close())
	}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	old := d.adapts.list[a.key()]
	other, elsewhere := d.followedElsewhere(a)
	switch {
	case d.adapts.isDown:
		return errors.Join(leaving(), path.Close())
	case a.Area != "" && d.adapts.areas[areaKey{a.Area, a.Netns}] == nil:
		return errors.Join(fmt.Errorf("%s is not followed any more", a.Area), path.Close())
	case elsewhere:
		return errors.Join(&api.Error{
			Code: api.CodeConflict, Message: fmt.Sprintf("the path to %s is followed from another network namespace, and limits on a destination are for all who send there", a.Address),
			Hint: "end that first: netnice adapt " + fromNamespace(a.Address.String(), other) + " off",
		}, path.Close())
	case old == nil && len(d.adapts.list) >= mostAdapted:
		return errors.Join(full("as many hosts are followed", mostAdapted, "end some first: netnice adapt"), path.Close())
	}
	if old != nil {
		d.haltAdapt(old)
		if old.subject() != a.subject() {
			if err := d.liftAdapt(ctx, old.subject()); err != nil {
				return errors.Join(err, path.Close())
			}
		}
	}
	if _, err := d.setToward(ctx, auth.Actor{}, api.SetRequest{Subject: a.subject(), Wish: api.Wish{UpBytesPerSec: &rate}}, a.Area != ""); err != nil {
		delete(d.adapts.list, a.key())
		d.saveAdapts()
		return errors.Join(err, path.Close())
	}
	if err := d.boundBacklog(a.subject(), a.BacklogNS); err != nil {
		delete(d.adapts.list, a.key())
		d.saveAdapts()
		return errors.Join(err, d.liftAdapt(ctx, a.subject()), path.Close())
	}
	d.holdQueue(a)
	a.path, a.state = path, adapt.State{Mode: adapt.ModeDelay, Rate: float64(rate)}
	d.adapts.list[a.key()] = a
	d.saveAdapts()
	d.log.Info("limit follows a path", "host", a.Host, "address", a.Address.String(), "by", path.Kind(), "start", rate)
	d.wakeAdapts()
	return nil
}

// followedElsewhere returns the other network namespace from which an address is followed. The address has one limit,
// so only one path to it can be followed.
func (d *Daemon) followedElsewhere(a *adapted) (netns uint32, ok bool) {
	for key := range d.adapts.list {
		if key.address == a.Address && key.netns != a.Netns {
			return key.netns, true
		}
	}
	return 0, false
}

// Adapted implements apiserver.Backend.
func (d *Daemon) Adapted(_ context.Context, by auth.Actor) (api.AdaptList, error) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	list := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	for _, a := range d.adapts.list {
		if a.addressIsFor(by) {
			list.Adapted = append(list.Adapted, a.api())
		}
	}
	slices.SortFunc(list.Adapted, func(a, b api.Adapted) int { return a.Since.Compare(b.Since) })
	for _, a := range d.adapts.areas {
		list.Areas = append(list.Areas, a.api())
	}
	slices.SortFunc(list.Areas, func(a, b api.AdaptArea) int { return a.Since.Compare(b.Since) })
	return list, nil
}

func (d *Daemon) renderAdapted(a *adapted) api.Adapted {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	return a.api()
}

// api returns the path's state for clients. The caller holds d.adapts.mu, if others know it.
func (a *adapted) api() api.Adapted {
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
