package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/rules"
)

// An area is many addresses. Each of them that receives traffic from here is followed as a host, as long as it does. A
// limit on all of them, which is never reached, finds these addresses.

const (
	areaLimit = 100_000_000_000 // bytes/s
	mostAreas = 16
	// areaIdle is the time without traffic after which a host is no longer followed. areaSilent is the time after which
	// the daemon tries a host again that could not be followed.
	areaIdle, areaSilent = time.Minute, 30 * time.Second
	// areaAtOnce is how many hosts are measured at a time.
	areaAtOnce = 8
)

type areaKey struct {
	host  string
	netns uint32
}

// adaptArea is one area, with the parameters by which each of its hosts is followed.
type adaptArea struct {
	Host  string `json:"host"` // as a destination is written
	Netns uint32 `json:"netns,omitempty"`
	adaptHow
	Since time.Time     `json:"since"`
	Rule  *rules.Origin `json:"rule,omitempty"` // the rule that asks for it; nil = a command

	began  map[netip.Addr]bool      // hosts whose path is being measured
	silent map[netip.Addr]time.Time // hosts that could not be followed, and when
}

func newArea(host string, netns uint32, how adaptHow, rule *rules.Origin) *adaptArea {
	return &adaptArea{
		Host: host, Netns: netns, adaptHow: how, Since: time.Now(), Rule: rule,
		began: map[netip.Addr]bool{}, silent: map[netip.Addr]time.Time{},
	}
}

func (a *adaptArea) key() areaKey { return areaKey{a.Host, a.Netns} }

func (a *adaptArea) api() api.AdaptArea {
	out := api.AdaptArea{
		Host: a.Host, Netns: a.Netns, Subject: a.subject(), SharePPM: a.SharePPM, TCP: a.TCP, MostBytesPerSec: a.Most, BacklogNS: a.BacklogNS, SilentHosts: len(a.silent), Since: a.Since,
	}
	if a.Rule != nil {
		out.Rule = originShown(*a.Rule)
	}
	return out
}

func (a *adaptArea) subject() api.Subject {
	s, _, _ := destination.Parse(a.Host) // it was read before
	if !a.TCP {
		s.Protocol = "udp"
	}
	return s.Subject(api.Subject{})
}

// isArea reports whether a request's host stands for many addresses.
func isArea(host string) bool { return strings.ContainsAny(host, "/,") || host == "any" }

// parseArea reads prefixes, including those that are left out.
func parseArea(text string) (string, error) {
	s, under, err := destination.Parse(text)
	if err != nil {
		return "", badAdapt("%v", err)
	}
	if len(s.Names) > 0 || s.List != "" || s.PortFrom != 0 || s.Protocol != "" || s.Each || under != (api.Subject{}) || len(s.Prefixes) == 0 {
		return "", badAdapt("%q is neither a host nor prefixes alone, such as 203.0.113.0/24 or any,!10.0.0.0/8", text)
	}
	return s.Subject(api.Subject{}).ID, nil
}

// setArea follows the hosts of a new area, or changes how those of a present one are followed.
func (d *Daemon) setArea(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	a := newArea(req.Host, req.Netns, howOf(&req), nil)
	answer.Areas, answer.Changed = []api.AdaptArea{a.api()}, true
	if req.DryRun {
		return answer, nil
	}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	if err := d.beginArea(ctx, a); err != nil {
		return answer, err
	}
	answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.adaptPath(), false)...)
	return answer, nil
}

// beginArea begins with an area, and replaces the present one with other parameters. The caller holds d.adapts.mu.
func (d *Daemon) beginArea(ctx context.Context, a *adaptArea) error {
	// While one is dropped, a rule may begin with it again.
	for old := d.adapts.areas[a.key()]; old != nil && !d.adapts.isDown; old = d.adapts.areas[a.key()] {
		if err := d.dropArea(ctx, old); err != nil {
			return err
		}
	}
	switch {
	case d.adapts.isDown:
		return leaving()
	case len(d.adapts.areas) >= mostAreas:
		return full("as many prefixes are followed", mostAreas, "end some first: netnice adapt")
	}
	limit := uint64(areaLimit)
	if _, err := d.Set(ctx, auth.Actor{}, api.SetRequest{Subject: a.subject(), Wish: api.Wish{UpBytesPerSec: &limit}}); err != nil {
		return err
	}
	d.adapts.areas[a.key()] = a
	d.saveAdapts()
	d.log.Info("limits follow paths to many hosts", "to", a.Host)
	d.wakeAdapts()
	return nil
}

// endArea ends an area and stops following all of its hosts.
func (d *Daemon) endArea(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	var from []uint32
	for key := range d.adapts.areas {
		if key.host == req.Host {
			from = append(from, key.netns)
		}
	}
	netns, err := meantNamespace(req, from)
	if err != nil {
		return answer, err
	}
	a := d.adapts.areas[areaKey{req.Host, netns}]
	if a.Rule != nil && d.followsRules() {
		return answer, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%v has the paths to %s followed", a.Rule, req.Host), Hint: "change it there"}
	}
	answer.Areas, answer.Changed = []api.AdaptArea{a.api()}, true
	if w := d.adapts.byRule(a.key()); w != nil {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("%v has them followed again", w.Rule))
	}
	if req.DryRun {
		return answer, nil
	}
	if err := d.dropArea(ctx, a); err != nil {
		return answer, err
	}
	d.log.Info("limits follow paths no more", "to", a.Host)
	d.saveAdapts()
	answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.adaptPath(), true)...)
	return answer, nil
}

// dropArea lifts the limits of an area and of its hosts. The caller holds d.adapts.mu, which is released while a host
// ends. No further host begins meanwhile, because the area is no longer listed, unless somebody begins with the area
// again: then the limit on all is theirs.
func (d *Daemon) dropArea(ctx context.Context, a *adaptArea) (err error) {
	delete(d.adapts.areas, a.key())
	begunAgain := func() bool { return d.adapts.areas[a.key()] != nil }
	defer func() {
		if err != nil && !begunAgain() {
			d.adapts.areas[a.key()] = a
		}
	}()
	for key, host := range d.adapts.list {
		if host.Area != a.Host || host.Netns != a.Netns {
			continue
		}
		d.haltAdapt(host)
		if err := d.liftAdapt(ctx, host.subject()); err != nil {
			return err
		}
		delete(d.adapts.list, key)
	}
	if begunAgain() {
		return nil
	}
	return d.liftAdapt(ctx, a.subject())
}

// lookAtAreas begins to follow hosts that receive traffic now, and ends those that do not.
func (d *Daemon) lookAtAreas(ctx context.Context, running *sync.WaitGroup) {
	d.adapts.mu.Lock()
	areas := make([]*adaptArea, 0, len(d.adapts.areas))
	for _, a := range d.adapts.areas {
		areas = append(areas, a)
	}
	d.adapts.mu.Unlock()
	for _, a := range areas {
		id, ok := d.limitOn(a.subject())
		if !ok {
			d.areaLifted(ctx, a)
			continue
		}
		peers, err := d.kernel.Peers(id)
		if err != nil {
			d.log.Debug("the hosts of an area are not known", "to", a.Host, "err", err)
			continue
		}
		for _, address := range d.newHosts(a, peers) {
			running.Go(func() { d.beginHost(ctx, a, address) })
		}
	}
	d.endIdleHosts(ctx)
}

// limitOn returns the node of the limit on what is sent to a destination.
func (d *Daemon) limitOn(s api.Subject) (id uint32, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.limiting(s); n != nil {
		return n.id, true
	}
	return 0, false
}

// limiting is limitOn for the node itself, nil if there is none. The caller holds d.mu.
func (d *Daemon) limiting(s api.Subject) *node {
	for _, n := range d.nodes {
		if n.res.Subject == s && n.requested[enforce.OwnerAdmin].Up != 0 {
			return n
		}
	}
	return nil
}

// areaLifted ends an area after somebody has lifted the limit that finds its hosts.
func (d *Daemon) areaLifted(ctx context.Context, a *adaptArea) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	if d.adapts.areas[a.key()] != a || d.adapts.isDown || ctx.Err() != nil {
		return
	}
	d.log.Info("limits follow paths no more: that on all was lifted", "to", a.Host)
	if err := d.dropArea(ctx, a); err != nil {
		d.log.Warn("the limits on hosts stay", "to", a.Host, "err", err)
	}
	d.saveAdapts()
}

// newHosts returns the peers whose paths the area asks to follow, and that nothing follows yet.
func (d *Daemon) newHosts(a *adaptArea, peers []enforce.Peer) (list []netip.Addr) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	if d.adapts.areas[a.key()] != a || d.adapts.isDown {
		return nil
	}
	room := min(areaAtOnce-len(a.began), mostAdapted-len(d.adapts.list)-len(a.began))
	slices.SortFunc(peers, func(x, y enforce.Peer) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.Netns, y.Netns))
	})
	for _, p := range peers {
		switch {
		case room <= len(list) || !d.inNamespace(p.Netns, a.Netns) || p.Address.IsLoopback() || p.Address.IsMulticast() || p.Address.IsUnspecified():
			continue
		case d.adapts.list[adaptKey{p.Address, a.Netns}] != nil || a.began[p.Address] || slices.Contains(list, p.Address):
			continue
		case time.Since(a.silent[p.Address]) < areaSilent:
			continue
		}
		list = append(list, p.Address)
	}
	for _, address := range list {
		a.began[address] = true
	}
	return list
}

// inNamespace compares network namespaces. The state has 0 in place of the number of the daemon's own.
func (d *Daemon) inNamespace(netns, wanted uint32) bool {
	if wanted == 0 {
		wanted = d.adapts.home
	}
	return netns == wanted
}

// beginHost follows one host of an area.
func (d *Daemon) beginHost(ctx context.Context, a *adaptArea, address netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, adaptPatience)
	defer cancel()
	host := &adapted{
		Host: address.String(), Address: address, Netns: a.Netns, adaptHow: a.adaptHow, Since: time.Now(), Area: a.Host, busyAt: time.Now(),
	}
	err := d.beginAdapt(ctx, host)
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	delete(a.began, address)
	delete(a.silent, address)
	if err == nil && d.adapts.areas[a.key()] != a && d.adapts.list[host.key()] == host { // the area has ended meanwhile
		d.haltAdapt(host)
		delete(d.adapts.list, host.key())
		d.saveAdapts()
		if err := d.liftAdapt(context.WithoutCancel(ctx), host.subject()); err != nil {
			d.log.Warn("the limit on a host stays", "address", address.String(), "err", err)
		}
	}
	if err != nil && d.adapts.areas[a.key()] == a {
		for old, at := range a.silent {
			if time.Since(at) > areaIdle {
				delete(a.silent, old)
			}
		}
		a.silent[address] = time.Now()
		d.log.Info("the path to a host is not followed", "address", address.String(), "of", a.Host, "err", err)
	}
}

// endIdleHosts ends hosts of areas that receive no traffic.
func (d *Daemon) endIdleHosts(ctx context.Context) {
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	ended := false
	for key, a := range d.adapts.list {
		if a.Area == "" || d.adapts.isDown {
			continue
		}
		if a.state.Sent > 0 {
			a.busyAt = time.Now()
		}
		if time.Since(a.busyAt) < areaIdle {
			continue
		}
		d.haltAdapt(a)
		if err := d.liftAdapt(ctx, a.subject()); err != nil {
			d.log.Warn("the limit on a host stays", "address", a.Address.String(), "err", err)
			continue
		}
		delete(d.adapts.list, key)
		d.log.Info("limit follows a path no more: nothing is sent there", "address", a.Address.String(), "of", a.Area)
		ended = true
	}
	if ended {
		d.saveAdapts()
	}
}
