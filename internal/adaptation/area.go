package adaptation

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
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// An area is many addresses. Each of them that receives traffic from here is followed as a host, as long as it does. A
// limit on all of them, which is never reached, finds these addresses.

const (
	// AreaLimit is the rate of the limit on a whole area, in bytes/s. It is never reached. The node of a limit as high as
	// that notes the addresses that programs send to.
	AreaLimit = limit.NeverReached

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

// area is one area, with the parameters by which each of its hosts is followed.
type area struct {
	Host  string `json:"host"` // as a destination is written
	Netns uint32 `json:"netns,omitempty"`
	settings
	Since time.Time     `json:"since"`
	Rule  *rules.Origin `json:"rule,omitempty"` // the rule that asks for it; nil = a command

	began  map[netip.Addr]bool      // hosts whose path is being measured
	silent map[netip.Addr]time.Time // hosts that could not be followed, and when
}

func newArea(host string, netns uint32, how settings, rule *rules.Origin) *area {
	return &area{
		Host: host, Netns: netns, settings: how, Since: time.Now(), Rule: rule,
		began: map[netip.Addr]bool{}, silent: map[netip.Addr]time.Time{},
	}
}

func (a *area) key() areaKey { return areaKey{a.Host, a.Netns} }

func (a *area) api() api.AdaptArea {
	out := api.AdaptArea{
		Host: a.Host, Netns: a.Netns, Subject: a.subject(), SharePPM: a.SharePPM, TCP: a.TCP, MostBytesPerSec: a.Most, BacklogNS: a.BacklogNS, SilentHosts: len(a.silent), Since: a.Since,
	}
	if a.Rule != nil {
		out.Rule = observe.ShownOrigin(*a.Rule)
	}
	return out
}

func (a *area) subject() api.Subject {
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
		return "", bad("%v", err)
	}
	if len(s.Names) > 0 || s.List != "" || s.PortFrom != 0 || s.Protocol != "" || s.Each || under != (api.Subject{}) || len(s.Prefixes) == 0 {
		return "", bad("%q is neither a host nor prefixes alone, such as 203.0.113.0/24 or any,!10.0.0.0/8", text)
	}
	return s.Subject(api.Subject{}).ID, nil
}

// setArea follows the hosts of a new area, or changes how those of a present one are followed.
func (t *Table) setArea(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	a := newArea(req.Host, req.Netns, settingsOf(&req), nil)
	answer.Areas, answer.Changed = []api.AdaptArea{a.api()}, true
	if req.DryRun {
		return answer, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.beginArea(ctx, a); err != nil {
		return answer, err
	}
	answer.Warnings = append(answer.Warnings, t.host.Unwritten(false)...)
	return answer, nil
}

// beginArea begins with an area, and replaces the present one with other parameters. The caller holds t.mu.
func (t *Table) beginArea(ctx context.Context, a *area) error {
	// While one is dropped, a rule may begin with it again.
	for old := t.areas[a.key()]; old != nil && t.refuse == nil; old = t.areas[a.key()] {
		if err := t.dropArea(ctx, old); err != nil {
			return err
		}
	}
	switch {
	case t.refuse != nil:
		return t.refuse
	case len(t.areas) >= mostAreas:
		return full("as many prefixes are followed", mostAreas)
	}
	if err := t.host.SetLimit(ctx, a.subject(), AreaLimit, false); err != nil {
		return err
	}
	t.areas[a.key()] = a
	t.save()
	t.log.Info("limits follow paths to many hosts", "to", a.Host)
	t.wakeUp()
	return nil
}

// endArea ends an area and stops following all of its hosts.
func (t *Table) endArea(ctx context.Context, req api.AdaptRequest) (api.AdaptList, error) {
	answer := api.AdaptList{Version: api.Version, Time: time.Now(), Adapted: []api.Adapted{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	var from []uint32
	for key := range t.areas {
		if key.host == req.Host {
			from = append(from, key.netns)
		}
	}
	netns, err := meantNamespace(req, from)
	if err != nil {
		return answer, err
	}
	a := t.areas[areaKey{req.Host, netns}]
	if a.Rule != nil && t.followsRules {
		return answer, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%v has the paths to %s followed", a.Rule, req.Host), Hint: "change it there"}
	}
	answer.Areas, answer.Changed = []api.AdaptArea{a.api()}, true
	if w := t.ruled.find(a.key()); w != nil {
		answer.Warnings = append(answer.Warnings, fmt.Sprintf("%v has them followed again", w.Rule))
	}
	if req.DryRun {
		return answer, nil
	}
	if err := t.dropArea(ctx, a); err != nil {
		return answer, err
	}
	t.log.Info("limits follow paths no more", "to", a.Host)
	t.save()
	answer.Warnings = append(answer.Warnings, t.host.Unwritten(true)...)
	return answer, nil
}

// dropArea lifts the limits of an area and of its hosts. The caller holds t.mu, which is released while a host
// ends. No further host begins meanwhile, because the area is no longer listed, unless somebody begins with the area
// again: then the limit on all is theirs.
func (t *Table) dropArea(ctx context.Context, a *area) (err error) {
	delete(t.areas, a.key())
	begunAgain := func() bool { return t.areas[a.key()] != nil }
	defer func() {
		if err != nil && !begunAgain() {
			t.areas[a.key()] = a
		}
	}()
	for key, host := range t.list {
		if host.Area != a.Host || host.Netns != a.Netns {
			continue
		}
		if t.halt(host); t.list[key] != host {
			continue // another request has begun with the host again, or ended it
		}
		if err := t.host.LiftLimit(ctx, host.subject()); err != nil {
			return err
		}
		delete(t.list, key)
	}
	if begunAgain() {
		return nil
	}
	return t.host.LiftLimit(ctx, a.subject())
}

// pollAreas begins to follow hosts that receive traffic now, and ends those that do not.
func (t *Table) pollAreas(ctx context.Context, running *sync.WaitGroup) {
	t.mu.Lock()
	areas := make([]*area, 0, len(t.areas))
	for _, a := range t.areas {
		areas = append(areas, a)
	}
	t.mu.Unlock()
	for _, a := range areas {
		id, _, ok := t.host.LimitOn(a.subject())
		if !ok {
			t.areaLifted(ctx, a)
			continue
		}
		peers, err := t.kernel.Peers(id)
		if err != nil {
			t.log.Debug("the hosts of an area are not known", "to", a.Host, "err", err)
			continue
		}
		for _, address := range t.newHosts(a, peers) {
			running.Go(func() { t.beginHost(ctx, a, address) })
		}
	}
	t.endIdleHosts(ctx)
}

// areaLifted ends an area after somebody has lifted the limit that finds its hosts.
func (t *Table) areaLifted(ctx context.Context, a *area) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.areas[a.key()] != a || t.refuse != nil || ctx.Err() != nil {
		return
	}
	t.log.Info("limits follow paths no more: that on all was lifted", "to", a.Host)
	if err := t.dropArea(ctx, a); err != nil {
		t.log.Warn("the limits on hosts stay", "to", a.Host, "err", err)
	}
	t.save()
}

// newHosts returns the peers whose paths the area asks to follow, and that nothing follows yet.
func (t *Table) newHosts(a *area, peers []enforce.Peer) (list []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.areas[a.key()] != a || t.refuse != nil {
		return nil
	}
	room := min(areaAtOnce-len(a.began), mostHosts-len(t.list)-len(a.began))
	slices.SortFunc(peers, func(x, y enforce.Peer) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.Netns, y.Netns))
	})
	for _, p := range peers {
		switch {
		case room <= len(list) || !t.inNamespace(p.Netns, a.Netns) || p.Address.IsLoopback() || p.Address.IsMulticast() || p.Address.IsUnspecified():
			continue
		case t.list[entryKey{p.Address, a.Netns}] != nil || a.began[p.Address] || slices.Contains(list, p.Address):
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
func (t *Table) inNamespace(netns, wanted uint32) bool {
	if wanted == 0 {
		wanted = t.home
	}
	return netns == wanted
}

// beginHost follows one host of an area.
func (t *Table) beginHost(ctx context.Context, a *area, address netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, beginPatience)
	defer cancel()
	host := &entry{
		Host: address.String(), Address: address, Netns: a.Netns, settings: a.settings, Since: time.Now(), Area: a.Host, busyAt: time.Now(),
	}
	err := t.begin(ctx, host)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(a.began, address)
	delete(a.silent, address)
	if err == nil && t.areas[a.key()] != a && t.list[host.key()] == host { // the area has ended meanwhile
		t.dropHost(ctx, host)
	}
	if err != nil && t.areas[a.key()] == a {
		for old, at := range a.silent {
			if time.Since(at) > areaIdle {
				delete(a.silent, old)
			}
		}
		a.silent[address] = time.Now()
		t.log.Info("the path to a host is not followed", "address", address.String(), "of", a.Host, "err", err)
	}
}

// dropHost ends a host whose area has ended. The caller holds t.mu, which is released while the host ends.
func (t *Table) dropHost(ctx context.Context, host *entry) {
	if t.halt(host); t.list[host.key()] != host {
		return // another request has begun with the host again, or ended it
	}
	delete(t.list, host.key())
	t.save()
	if err := t.host.LiftLimit(context.WithoutCancel(ctx), host.subject()); err != nil {
		t.log.Warn("the limit on a host stays", "address", host.Address.String(), "err", err)
	}
}

// endIdleHosts ends hosts of areas that receive no traffic.
func (t *Table) endIdleHosts(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ended := false
	for key, a := range t.list {
		if a.Area == "" || t.refuse != nil {
			continue
		}
		if a.state.Sent > 0 {
			a.busyAt = time.Now()
		}
		if time.Since(a.busyAt) < areaIdle {
			continue
		}
		if t.halt(a); t.list[key] != a {
			continue // another request has begun with the host again, or ended it
		}
		if err := t.host.LiftLimit(ctx, a.subject()); err != nil {
			t.log.Warn("the limit on a host stays", "address", a.Address.String(), "err", err)
			continue
		}
		delete(t.list, key)
		t.log.Info("limit follows a path no more: nothing is sent there", "address", a.Address.String(), "of", a.Area)
		ended = true
	}
	if ended {
		t.save()
	}
}
