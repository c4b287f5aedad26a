package pacing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netnice/netnice/internal/bpf"
)

// The kernel calls the egress hook for each packet of a socket whose cgroup is the hook's or a descendant. The hook
// has to see the limited processes and all sockets that they use. A socket keeps the cgroup in which it was made.
// While only processes and cgroups have limits, the hook is on the lowest cgroup that holds all of these. A program
// that makes, or first uses, a limited socket outside raises an event (bpf/cover.h). Within a millisecond or so the
// hook moves up. It comes down again after a limit was lifted. Sockets that the hook does not see have no chunks
// deferred.

// cover is the scope of the egress hook.
type cover struct {
	path  string // path below the cgroup root, "" = it is not attached
	id    uint64 // id of that cgroup, 0 = the root
	stale bool   // a lower cgroup may suffice
}

const rootCgroup = "/"

// commonCgroup returns the lowest cgroup that holds both.
func commonCgroup(a, b string) string {
	x, y := levels(a), levels(b)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	return rootCgroup + strings.Join(x[:n], "/")
}

func levels(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// widened returns the lowest cgroup that holds the first one and all the given paths. A first path of "" stands for
// no cgroup.
func widened(from string, paths ...string) string {
	for _, path := range paths {
		if from == "" {
			from = path
		}
		from = commonCgroup(from, path)
	}
	return from
}

// needsRoot reports whether some limit is on sockets that may be in any cgroup.
func (k *Kernel) needsRoot() bool {
	if k.rates {
		return true
	}
	for _, n := range k.nodes {
		if n.Kind != bpf.KindTree && n.Kind != bpf.KindCgroup {
			return true
		}
	}
	return false
}

// coverNode widens the scope of the egress hook to a new node's processes.
func (k *Kernel) coverNode(n bpf.Node, cgroups map[uint64]bool) error {
	if n.Kind == bpf.KindCgroup {
		cgroups = map[uint64]bool{n.Subject: true}
	}
	return k.widen(cgroups)
}

// coverStrays widens the scope to those of the listed limited sockets that the hook does not see.
func (k *Kernel) coverStrays(list []bpf.SocketRecord) error {
	cgroups := map[uint64]bool{}
	for _, r := range list {
		if r.Stray != 0 && k.limited(r) {
			cgroups[r.Cgroup] = true
		}
	}
	if len(cgroups) == 0 {
		return nil
	}
	return k.widen(cgroups)
}

// follow widens the scope to the sockets made in a cgroup, at the request of an event.
func (k *Kernel) follow(cgroup uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.nodes) == 0 {
		return nil // the limits have gone meanwhile
	}
	return k.widen(map[uint64]bool{cgroup: true})
}

// coverAll puts the hook on the root.
func (k *Kernel) coverAll() error { return k.moveEgress(rootCgroup) }

// coverAnew computes the scope from all sockets and processes, if a lower cgroup may suffice.
func (k *Kernel) coverAnew() error {
	if !k.cover.stale || len(k.nodes) == 0 {
		return nil
	}
	list, err := k.obj.ListSockets()
	if err != nil {
		return fmt.Errorf("list sockets: %w", err)
	}
	if err := k.setRatesOf(list); err != nil {
		return err
	}
	k.cover.stale = false
	if k.needsRoot() {
		return k.coverAll()
	}
	tasks, err := k.obj.ListTasks()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	cgroups := map[uint64]bool{}
	for _, r := range list {
		if k.limited(r) {
			cgroups[r.Cgroup] = true
		}
	}
	for _, t := range tasks {
		if _, ok := k.nodes[t.Node]; ok {
			cgroups[t.Cgroup] = true
		}
	}
	for _, n := range k.nodes {
		if n.Kind == bpf.KindCgroup {
			cgroups[n.Subject] = true
		}
	}
	return k.moveEgress(k.wanted("", cgroups))
}

func (k *Kernel) widen(cgroups map[uint64]bool) error {
	return k.moveEgress(k.wanted(k.cover.path, cgroups))
}

// wanted returns the path of the lowest cgroup that holds the first one and the cgroups of these ids.
func (k *Kernel) wanted(from string, cgroups map[uint64]bool) string {
	if k.needsRoot() || from == rootCgroup {
		return rootCgroup
	}
	var paths []string
	for _, id := range slices.Sorted(maps.Keys(cgroups)) {
		path, err := k.obj.CgroupPath(id)
		if err != nil {
			k.opts.Logger.Debug("the egress hook goes on the root", "err", err)
			return rootCgroup
		}
		paths = append(paths, path)
	}
	if path := widened(from, paths...); path != "" {
		return path
	}
	return rootCgroup // no process is there yet
}

// moveEgress moves the hook. It falls back to the root if another cgroup refuses the hook.
func (k *Kernel) moveEgress(path string) error {
	if path != rootCgroup && !k.guarded() {
		path = rootCgroup
	}
	err := k.attachEgress(path)
	if err != nil && path != rootCgroup {
		k.opts.Logger.Debug("the egress hook goes on the root", "err", err)
		return k.attachEgress(rootCgroup)
	}
	return err
}

func (k *Kernel) attachEgress(path string) error {
	before := k.cover
	err := k.obj.MoveEgress(path, func(id uint64) error {
		k.cover.id = id
		return k.writePolicy()
	})
	if err != nil {
		k.cover = before
		return err
	}
	k.cover.path = path
	return nil
}
