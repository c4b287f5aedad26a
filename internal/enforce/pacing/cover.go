package pacing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netnice/netnice/internal/bpf"
)

// The egress hook is called for each packet of whoever is in its cgroup or
// below. While the only limits are on processes and cgroups it is on the lowest
// cgroup that holds them all, and all sockets that they use: a socket keeps the
// cgroup that it was made in. It goes up within a millisecond or so: whoever makes or
// first uses a limited socket outside raises an event (bpf/cover.h). It comes down again after a limit was lifted.
// Where it does not see a socket nothing is held.

// cover is where the egress hook is.
type cover struct {
	path  string // below the cgroup root, "" = it is not attached
	id    uint64 // of that cgroup, 0 = the root's
	stale bool   // a lower one may do
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

// widened returns the cgroup that holds what is in one and the cgroups at the
// given paths; "" holds nothing yet.
func widened(from string, paths ...string) string {
	for _, path := range paths {
		if from == "" {
			from = path
		}
		from = commonCgroup(from, path)
	}
	return from
}

// needsRoot reports whether something is limited that may be in any cgroup.
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

// coverNode has the egress hook see a new node's processes.
func (k *Kernel) coverNode(n bpf.Node, cgroups map[uint64]bool) error {
	if n.Kind == bpf.KindCgroup {
		cgroups = map[uint64]bool{n.Subject: true}
	}
	return k.widen(cgroups)
}

// coverStrays has it see the listed sockets that it does not.
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

// follow has it see the sockets made in a cgroup, as an event asks for it.
func (k *Kernel) follow(cgroup uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.nodes) == 0 {
		return nil // gone meanwhile
	}
	return k.widen(map[uint64]bool{cgroup: true})
}

// coverAll puts it on the root.
func (k *Kernel) coverAll() error { return k.moveEgress(rootCgroup) }

// coverAnew looks where it has to be, if it may be lower than it is.
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

// wanted returns the path of the cgroup that holds what is in one and in the
// cgroups of these ids.
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
	return rootCgroup // nobody is there yet
}

// moveEgress moves the hook, to the root where another cgroup does not take it.
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
