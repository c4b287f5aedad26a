package daemon

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Nodes implements apiserver.Backend. Everybody sees all nodes, but not the destinations of other users' limits.
func (d *Daemon) Nodes(_ context.Context, by auth.Actor) (api.NodeList, error) {
	now, err := d.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	powers := d.cpuShares.Shown()
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list(slices.DeleteFunc(d.sorted(), (*node).marks), now, viewer{by: by})
	list.Powers = powers
	return list, nil
}

// NodesFor implements apiserver.Backend.
func (d *Daemon) NodesFor(ctx context.Context, by auth.Actor, s api.Subject) (api.NodeList, error) {
	if s.Kind == api.KindRule {
		return d.nodesOfRule(by, s)
	}
	if s.Kind == api.KindTo {
		return d.nodesToward(by, s)
	}
	res, resErr := d.resolver.Resolve(ctx, s)
	if resErr != nil && !identity.IsNotFound(resErr) {
		return api.NodeList{}, resErr
	}
	now, err := d.sampler.full()
	if err != nil {
		return api.NodeList{}, err
	}
	own := resErr == nil && res.Kind == enforce.KindTree && res.UID == by.UID
	d.mu.Lock()
	defer d.mu.Unlock()
	var holding []*node
	if n := d.find(res, s, resErr); n != nil {
		holding = append(holding, n)
		res = n.res
	} else if resErr != nil {
		return api.NodeList{}, resErr
	}
	holding = slices.DeleteFunc(d.around(holding, res, now), (*node).marks)
	if len(holding) == 0 {
		return api.NodeList{}, &api.Error{
			Code:    api.CodeNoLimit,
			Message: fmt.Sprintf("no limit holds for %s", s), Hint: "netnice ls",
		}
	}
	seen := viewer{by: by}
	if own {
		seen.within = holding
	}
	return d.list(holding, now, seen), nil
}

// around appends the nodes that enclose the subject, innermost first.
func (d *Daemon) around(list []*node, res identity.Resolved, now sample) []*node {
	return d.aroundOf(d.sorted(), list, res, now)
}

// aroundOf is around for callers that call it repeatedly: all are the nodes in order.
func (d *Daemon) aroundOf(all, list []*node, res identity.Resolved, now sample) []*node {
	add := func(match func(*node) bool) {
		for _, n := range all {
			if match(n) && !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	cgroup := res.Dir
	user, knowsUser := res.UID, res.Kind == enforce.KindTree
	if res.Kind == enforce.KindTree {
		pid := int(res.Key)
		for _, id := range d.kernel.Trees(pid) {
			add(func(n *node) bool { return n.id == id })
		}
		// Only the kernel knows all forks, since parents may have ended. The trees of the process's sockets therefore
		// come first, then those of the living parents.
		known := make(map[uint32]bool) // most sockets of a program have the same nodes
		for _, s := range now.sockets {
			if int(s.PID) != pid {
				continue
			}
			for _, id := range s.Nodes {
				if !known[id] {
					known[id] = true
					add(func(n *node) bool { return n.id == id && n.res.Kind == enforce.KindTree })
				}
			}
		}
		for _, tree := range slices.Clone(list) {
			add(func(n *node) bool { return n.concerns(tree) })
		}
		add(func(n *node) bool { return n.concernsUser(res.UID) })
		for _, a := range d.resolver.Ancestors(pid) {
			add(func(n *node) bool {
				return n.res.Kind == enforce.KindTree && int(n.res.Key) == a.PID &&
					identity.SameStart(n.res.StartBoottimeNS, a.StartBoottimeNS)
			})
		}
		if root, err := d.resolver.CgroupRoot(); err == nil {
			if rel, err := d.resolver.ProcessCgroup(pid); err == nil {
				cgroup = root + rel
			}
		}
	}
	if cgroup != "" {
		first := len(list)
		add(func(n *node) bool {
			return n.res.Kind == enforce.KindCgroup && n.res.Dir != "" && strings.HasPrefix(cgroup+"/", n.res.Dir+"/")
		})
		slices.SortStableFunc(list[first:], func(a, b *node) int { return len(b.res.Dir) - len(a.res.Dir) })
	}
	add(func(n *node) bool { return knowsUser && n.res.Kind == enforce.KindUser && n.res.UID == user })
	add(func(n *node) bool { return n.res.Kind == enforce.KindHost })
	there := uint32(0)
	if res.Kind == enforce.KindTree {
		there, _ = netnamespace.Of(strconv.Itoa(int(res.Key))) // 0 for an ended process: the links of all namespaces
	}
	for _, outer := range slices.Clone(list) {
		add(func(n *node) bool { return n.to != nil && n.to.scope == outer })
	}
	add(func(n *node) bool {
		ns, _ := enforce.LinkOf(n.res.Key)
		return n.res.Kind == enforce.KindLink && (there == 0 || ns == there)
	})
	return list
}

func (d *Daemon) list(nodes []*node, now sample, by viewer) api.NodeList {
	answer := api.NodeList{Version: api.Version, Time: now.at, Nodes: make([]api.Node, 0, len(nodes)), Unknown: d.renderUnknown(now)}
	var census map[uint32]int
	enclosing := d.enclosures()
	promised := sync.OnceValue(func() guarantees { return d.guarantees(enforce.Up) })
	for _, n := range nodes {
		shown := d.render(n, now)
		shown.PromisedBytesPerSec, shown.PromisableBytesPerSec = n.promises(promised)
		if by.sees(n) {
			shown.Names, shown.ListedPrefixes = d.shownNames(n), len(d.listed(n))
		} else {
			shown.Subject, shown.Name = n.hidden()
		}
		if shown.Parent == 0 {
			shown.Parent = enclosing.of(n)
			if n.to != nil && n.to.scope != nil && !n.to.scope.marks() {
				shown.Parent = n.to.scope.id
			}
		}
		shown.Up.Uncounted = shown.Up.Bytes == 0 && !d.countsSent(n, enclosing, now)
		switch n.res.Kind {
		case enforce.KindUser, enforce.KindHost:
			if census == nil {
				census = d.census()
			}
			if n.res.Kind == enforce.KindUser {
				shown.Processes = census[n.res.UID]
				break
			}
			for _, count := range census {
				shown.Processes += count
			}
		case enforce.KindCgroup:
			if !n.res.Pending() {
				shown.Processes = identity.CgroupProcesses(n.res.Dir)
			}
		}
		answer.Nodes = append(answer.Nodes, shown)
	}
	return answer
}

// enclosures finds the node that encloses another where the kernel side names none, because it nests only trees. It is
// the first one of cgroup, user and host.
type enclosures struct {
	resolver *identity.Resolver
	mount    string
	cgroups  map[string]uint32 // by folder
	users    map[uint32]uint32
	host     uint32
}

func (d *Daemon) enclosures() *enclosures {
	if d.enclosing != nil {
		return d.enclosing
	}
	e := &enclosures{resolver: d.resolver, cgroups: make(map[string]uint32), users: make(map[uint32]uint32)}
	for id, n := range d.nodes {
		switch {
		case n.res.Kind == enforce.KindHost:
			e.host = id
		case n.res.Kind == enforce.KindUser:
			e.users[n.res.UID] = id
		case n.res.Kind == enforce.KindCgroup && n.res.Dir != "":
			e.cgroups[n.res.Dir] = id
		}
	}
	if len(e.cgroups) > 0 {
		if mount, err := d.resolver.CgroupRoot(); err == nil {
			e.mount = mount
		}
	}
	d.enclosing = e
	return e
}

func (e *enclosures) of(n *node) uint32 {
	switch n.res.Kind {
	case enforce.KindHost, enforce.KindLink:
		return 0
	case enforce.KindCgroup:
		if id := e.around(path.Dir(n.res.Dir)); id != 0 {
			return id
		}
	case enforce.KindTree:
		if n.res.Key == 0 && n.res.UID == 0 {
			break // it has many users
		}
		if e.mount != "" {
			if rel, err := e.resolver.ProcessCgroup(int(n.res.Key)); err == nil {
				if id := e.around(e.mount + rel); id != 0 {
					return id
				}
			}
		}
		if id := e.users[n.res.UID]; id != 0 {
			return id
		}
	}
	return e.host
}

// around returns the innermost cgroup node that contains a folder.
func (e *enclosures) around(dir string) uint32 {
	for ; len(dir) > len(e.mount) && e.mount != ""; dir = path.Dir(dir) {
		if id := e.cgroups[dir]; id != 0 {
			return id
		}
	}
	return 0
}

// render returns a node in the form of the API. It counts processes only as far as the kernel does, and leaves out the
// promises on its limit.
func (d *Daemon) render(n *node, now sample) api.Node {
	stats, queue := now.nodes[n.id], now.queues[n.id]
	rates := n.history.rates(pointOf(now.at, stats), d.opts.Tick/2)
	return api.Node{
		ID: n.id, Subject: n.res.Subject, Parent: stats.Parent, Name: d.nodeName(n), UID: n.res.UID, Private: !n.destinationIsFor(anybody()),
		Limits: n.limits(), Weight: n.holding().Weight(), MinBytesPerSec: n.promised(), MinDownBytesPerSec: n.promisedOn(enforce.Down), Reserved: n.holding().Reservation().API(), DSCP: dscpOf(n.holding().DSCP()), Loopback: n.holding().Loopback(), MeterOff: d.meterOff(n),
		Group:     n.group,
		Line:      n.requested[enforce.OwnerAdmin].Line.API(),
		Granted:   n.requested[enforce.OwnerAdmin].Grant.API(),
		Processes: stats.Processes, Sockets: queue.sockets, PID: n.pid(), Since: n.since,
		Total: totalUsage(n, stats, rates),
		Up: api.Usage{
			Bytes:           stats.Bytes,
			RateBytesPerSec: rates.up,
			WaitingSockets:  queue.waiting,
			WaitingBytes:    queue.bytes,
			WaitNS:          queue.waitNS,
			Held:            stats.Held,
			QueuedBytes:     stats.Datagrams.QueuedBytes,
			QueueNS:         stats.Datagrams.DelayNS,
			Dropped:         stats.Datagrams.Dropped.Sum(),
			DroppedFor:      drops(stats.Datagrams.Dropped),
		},
		Down: api.Usage{
			Bytes:           stats.Down.Bytes,
			RateBytesPerSec: rates.down,
			WaitingBytes:    stats.Down.QueuedBytes,
			WaitNS:          stats.Down.DelayNS,
			Dropped:         stats.Down.Dropped.Sum(),
			DroppedFor:      drops(stats.Down.Dropped),
			Uncounted:       !d.countsReceived(n),
		},
	}
}

// totalUsage returns the charge of a limit on both directions together, nil if the node has none.
func totalUsage(n *node, stats enforce.NodeStats, rates flowRates) *api.TotalUsage {
	if !n.holding().HasTotal() {
		return nil
	}
	return &api.TotalUsage{Bytes: stats.TotalBytes, RateBytesPerSec: rates.total}
}

// drops returns drops in the form of the API.
func drops(d enforce.Drops) api.Drops {
	return api.Drops{QueueFull: d.QueueFull, NoQueue: d.NoQueue, Ahead: d.Ahead}
}

// census counts processes by user, at most once a second.
func (d *Daemon) census() map[uint32]int {
	if time.Since(d.headcount.at) >= time.Second {
		count, err := d.resolver.Census()
		if err != nil {
			return nil // shown as no processes; the limits are not affected
		}
		d.headcount = headcount{time.Now(), count}
	}
	return d.headcount.byUID
}

// headcount is a census and its time.
type headcount struct {
	at    time.Time
	byUID map[uint32]int
}

// programs lists the kernel programs by name.
func (d *Daemon) programs() []api.Program {
	// Some kernel sides know the purpose of their programs.
	describer, _ := d.kernel.(interface{ ProgramFor(name string) string })
	list := []api.Program{}
	for name, attached := range d.kernel.Attached() {
		p := api.Program{Name: name, Attached: attached}
		if describer != nil {
			p.For = describer.ProgramFor(name)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b api.Program) int { return strings.Compare(a.Name, b.Name) })
	return list
}
