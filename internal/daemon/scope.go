package daemon

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/scope"
)

// scopeOptions say what a scope needs from the daemon.
func (d *Daemon) scopeOptions() scope.Options {
	return scope.Options{
		Resolver: d.resolver, Folder: d.opts.ScopeFolder, Log: d.log,
		MustStayIn: func(by auth.Actor, origin, slice string) string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.leftByUser(by, origin, slice)
		},
	}
}

// leaveScope ends the scope of a node, if it has one.
func (d *Daemon) leaveScope(n *node) {
	if n.scope != nil {
		d.scopes.Leave(n.scope, n.res.Dir)
	}
}

// sweepScopes removes the empty folders that an earlier daemon left. The caller holds d.mu.
func (d *Daemon) sweepScopes() {
	d.scopes.Sweep(func() map[string]bool {
		used := make(map[string]bool)
		for n := range d.nodes.All() {
			used[n.res.Dir] = true
		}
		return used
	})
}

// leftByUser returns the cgroup that a user may not leave for a cgroup of its own in a slice, "" if there is none. In
// the user's own slice the user escapes no limit of others, except limits on the cgroups in between. The caller holds
// d.mu.
func (d *Daemon) leftByUser(by auth.Actor, origin, slice string) string {
	if by.Root() {
		return ""
	}
	root, err := d.resolver.CgroupRoot()
	if err != nil || slice != fmt.Sprintf("user-%d.slice", by.UID) {
		return origin
	}
	stays := filepath.Join(root, identity.SliceFolder(slice))
	for n := range d.nodes.All() {
		if !n.IsOnlyUsers() && limitsBetween(n.res, stays, filepath.Join(root, origin)) {
			return strings.TrimPrefix(n.res.Dir, strings.TrimSuffix(root, "/"))
		}
	}
	return ""
}

// limitsBetween reports whether a limit is on a cgroup inside below, and holds in the cgroup in.
func limitsBetween(res identity.Resolved, below, in string) bool {
	return res.Kind == enforce.KindCgroup && strings.HasPrefix(res.Dir, below+"/") && strings.HasPrefix(in+"/", res.Dir+"/")
}
