package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

const (
	runPrefix = "run-"
	// scopePatience bounds the time in which systemd starts a scope.
	scopePatience = 10 * time.Second
)

// enterScope moves a process into a cgroup of its own, and returns that cgroup. The caller holds d.scopes, and not d.mu:
// systemd may take long.
func (d *Daemon) enterScope(ctx context.Context, by auth.Actor, proc identity.Resolved) (identity.Resolved, *desired.Scope, error) {
	ctx, cancel := context.WithTimeout(ctx, scopePatience)
	defer cancel()
	pid := int(proc.Key)
	origin, err := d.resolver.ProcessCgroup(pid)
	if err != nil {
		return identity.Resolved{}, nil, err
	}
	sc := &desired.Scope{PID: pid, StartNS: proc.StartBoottimeNS, UID: by.UID}
	var subject api.Subject
	if systemd := d.resolver.Systemd(); systemd.Running() {
		slice := identity.OuterSlice(origin)
		d.mu.Lock()
		left := d.leftByUser(by, origin, slice)
		d.mu.Unlock()
		if left != "" {
			return identity.Resolved{}, nil, scopeDenied(pid, left)
		}
		name := fmt.Sprintf("run-netnice-%d.scope", pid)
		if err := systemd.StartScope(ctx, name, slice, []int{pid}); err != nil {
			return identity.Resolved{}, nil, err
		}
		rel, err := d.resolver.ProcessCgroup(pid)
		if err != nil {
			return identity.Resolved{}, nil, err
		}
		if path.Base(rel) != name {
			return identity.Resolved{}, nil, fmt.Errorf("process %d is in %s, not in its new scope %s", pid, rel, name)
		}
		subject = api.Subject{Kind: api.KindCgroup, ID: rel}
	} else {
		if !by.Root() && origin != "/" {
			return identity.Resolved{}, nil, scopeDenied(pid, origin)
		}
		sc.Made, sc.Origin = true, origin
		if subject, err = d.makeScope(pid); err != nil {
			return identity.Resolved{}, nil, err
		}
	}
	res, err := d.resolver.Resolve(ctx, subject)
	if err == nil && !d.resolver.Alive(pid, proc.StartBoottimeNS) {
		err = &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", pid), Cause: identity.ErrNotFound}
	}
	if err != nil {
		d.leaveScope(&node{res: res, scope: sc})
		return identity.Resolved{}, nil, err
	}
	res.Name = proc.Name
	return res, sc, nil
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
		if !n.own() && limitsBetween(n.res, stays, filepath.Join(root, origin)) {
			return strings.TrimPrefix(n.res.Dir, strings.TrimSuffix(root, "/"))
		}
	}
	return ""
}

// limitsBetween reports whether a limit is on a cgroup inside below, and holds in the cgroup in.
func limitsBetween(res identity.Resolved, below, in string) bool {
	return res.Kind == enforce.KindCgroup && strings.HasPrefix(res.Dir, below+"/") && strings.HasPrefix(in+"/", res.Dir+"/")
}

func scopeDenied(pid int, origin string) error {
	return auth.Denied(
		fmt.Sprintf("process %d would leave the cgroup %s, and with it the limits that the administrator may have set there", pid, origin),
		fmt.Sprintf("without --scope, or: %s", auth.Command(auth.Scope, identity.PIDSubject(pid), api.Wish{})+" --scope ..."))
}

// makeScope makes the folder and moves the process into it.
func (d *Daemon) makeScope(pid int) (api.Subject, error) {
	root, err := d.resolver.CgroupRoot()
	if err != nil {
		return api.Subject{}, err
	}
	rel := path.Join("/", d.opts.ScopeFolder, runPrefix+strconv.Itoa(pid))
	dir := filepath.Join(root, rel)
	for _, folder := range []string{filepath.Dir(dir), dir} {
		if err := makeCgroup(folder); err != nil {
			return api.Subject{}, fmt.Errorf("make a cgroup: %w", err)
		}
	}
	if err := moveTo(dir, pid); err != nil {
		removeScope(dir)
		return api.Subject{}, fmt.Errorf("move process %d into the cgroup %s: %w", pid, rel, err)
	}
	return api.Subject{Kind: api.KindCgroup, ID: rel}, nil
}

// makeCgroup makes a cgroup, if it does not exist, that everybody may enter, whatever the umask: programs read the
// files of their own cgroup.
func makeCgroup(dir string) error {
	if err := cpu.MakeReadable(dir); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func moveTo(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// leaveScope moves the processes in a folder of netnice's own back to their former cgroup, and removes the folder. It
// logs a failure; a later sweep removes the folder.
func (d *Daemon) leaveScope(n *node) {
	if n.scope == nil || !n.scope.Made || n.res.Dir == "" {
		return
	}
	root, err := d.resolver.CgroupRoot()
	if err != nil {
		d.log.Warn("a process stays in netnice's cgroup", "cgroup", n.res.Dir, "err", err)
		return
	}
	to := filepath.Join(root, n.scope.Origin)
	if _, err := identity.CgroupID(to); err != nil {
		to = root
	}
	const tries = 5 // a process that forks meanwhile leaves a child behind
	for range tries {
		data, err := os.ReadFile(filepath.Join(n.res.Dir, "cgroup.procs"))
		if err != nil || len(data) == 0 {
			break
		}
		for line := range strings.Lines(string(data)) {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				continue
			}
			if err := moveTo(to, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				d.log.Warn("a process stays in netnice's cgroup", "pid", pid, "cgroup", n.res.Dir, "err", err)
			}
		}
	}
	removeScope(n.res.Dir)
}

// removeScope removes an empty cgroup, and the folder around it once that is empty too. A cgroup that is in use stays.
func removeScope(dir string) {
	if os.Remove(dir) == nil {
		_ = os.Remove(filepath.Dir(dir))
	}
}

// sweepScopes removes the empty folders that an earlier daemon left, unless one is just being made. The caller holds d.mu.
func (d *Daemon) sweepScopes() {
	if !d.scopes.TryLock() {
		return
	}
	defer d.scopes.Unlock()
	root, err := d.resolver.CgroupRoot()
	if err != nil {
		return
	}
	folder := filepath.Join(root, d.opts.ScopeFolder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	used := make(map[string]bool)
	for n := range d.nodes.All() {
		used[n.res.Dir] = true
	}
	for _, e := range entries {
		dir := filepath.Join(folder, e.Name())
		if e.IsDir() && strings.HasPrefix(e.Name(), runPrefix) && !used[dir] {
			removeScope(dir)
		}
	}
}

// emptyCgroup reports whether no process is left in a cgroup and below it.
func emptyCgroup(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && strings.Contains(string(data), "populated 0")
}
