// Package scope moves a process into a cgroup of its own, by systemd or in a folder of netnice's, and back. It knows no
// limit; and it may take long, so nobody holds the lock of the limits meanwhile.
package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	// RunPrefix begins the name of a process's folder; the rest is its number.
	RunPrefix = "run-"
	// patience bounds the time in which systemd starts a scope.
	patience = 10 * time.Second
)

// Options are what making scopes needs.
type Options struct {
	Resolver *identity.Resolver
	Folder   string // of the scopes that systemd does not make, below the mount of the cgroups
	Log      *slog.Logger
	// MustStayIn returns the cgroup that a user may not leave for a cgroup of its own in a slice, "" if there is none.
	MustStayIn func(by auth.Actor, origin, slice string) string
}

// Maker makes scopes. Its lock is held while one is made and until its limit is in force or refused; it is taken before
// the lock on the limits.
type Maker struct {
	Options
	sync.Mutex
	folders sync.Mutex // held while folders are made or removed: the last scope takes the folder around it along
}

// New returns a maker.
func New(o Options) *Maker { return &Maker{Options: o} }

// Enter moves a process into a cgroup of its own, and returns that cgroup. The caller holds the lock.
func (m *Maker) Enter(ctx context.Context, by auth.Actor, proc identity.Resolved) (identity.Resolved, *desired.Scope, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pid := int(proc.Key)
	origin, err := m.Resolver.ProcessCgroup(pid)
	if err != nil {
		return identity.Resolved{}, nil, err
	}
	sc := &desired.Scope{PID: pid, StartNS: proc.StartBoottimeNS, UID: by.UID}
	var subject api.Subject
	if systemd := m.Resolver.Systemd(); systemd.Running() {
		slice := identity.OuterSlice(origin)
		if left := m.MustStayIn(by, origin, slice); left != "" {
			return identity.Resolved{}, nil, denied(pid, left)
		}
		name := unitName(pid)
		if err := systemd.StartScope(ctx, name, slice, []int{pid}); err != nil {
			return identity.Resolved{}, nil, err
		}
		rel, err := m.Resolver.ProcessCgroup(pid)
		if err != nil {
			return identity.Resolved{}, nil, err
		}
		if path.Base(rel) != name {
			return identity.Resolved{}, nil, fmt.Errorf("process %d is in %s, not in its new scope %s", pid, rel, name)
		}
		subject = api.Subject{Kind: api.KindCgroup, ID: rel}
	} else {
		if !by.Root() && origin != "/" {
			return identity.Resolved{}, nil, denied(pid, origin)
		}
		sc.Made, sc.Origin = true, origin
		if subject, err = m.makeFolder(pid); err != nil {
			return identity.Resolved{}, nil, err
		}
	}
	res, err := m.Resolver.Resolve(ctx, subject)
	if err == nil && !m.Resolver.Alive(pid, proc.StartBoottimeNS) {
		err = &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", pid), Cause: identity.ErrNotFound}
	}
	if err != nil {
		m.Leave(sc, res.Dir)
		return identity.Resolved{}, nil, err
	}
	res.Name = proc.Name
	return res, sc, nil
}

// unitName is the name of the scope that systemd makes for a process.
func unitName(pid int) string { return fmt.Sprintf("run-netnice-%d.scope", pid) }

// folderOf is the scope of a process that systemd does not make, below the mount of the cgroups.
func (m *Maker) folderOf(pid int) string {
	return path.Join("/", m.Folder, RunPrefix+strconv.Itoa(pid))
}

// Place returns a process as it is once Enter has moved it: as a cgroup, so that what encloses the scope encloses it. It
// has the process's own name and key.
func (m *Maker) Place(proc identity.Resolved) (identity.Resolved, error) {
	pid := int(proc.Key)
	root, err := m.Resolver.CgroupRoot()
	if err != nil {
		return proc, err
	}
	rel := m.folderOf(pid)
	if m.Resolver.Systemd().Running() {
		origin, err := m.Resolver.ProcessCgroup(pid)
		if err != nil {
			return proc, err
		}
		rel = path.Join(identity.SliceFolder(identity.OuterSlice(origin)), unitName(pid))
	}
	return identity.Resolved{Subject: proc.Subject, Kind: enforce.KindCgroup, Key: proc.Key, Name: proc.Name, Dir: filepath.Join(root, rel)}, nil
}

func denied(pid int, origin string) error {
	return auth.Denied(
		fmt.Sprintf("process %d would leave the cgroup %s, and with it the limits that the administrator may have set there", pid, origin),
		fmt.Sprintf("without --scope, or: %s", auth.Command(auth.Scope, identity.PIDSubject(pid), api.Wish{})+" --scope ..."))
}

// makeFolder makes the folder and moves the process into it.
func (m *Maker) makeFolder(pid int) (api.Subject, error) {
	root, err := m.Resolver.CgroupRoot()
	if err != nil {
		return api.Subject{}, err
	}
	rel := m.folderOf(pid)
	dir := filepath.Join(root, rel)
	if err := m.makeCgroups(filepath.Dir(dir), dir); err != nil {
		return api.Subject{}, fmt.Errorf("make a cgroup: %w", err)
	}
	if err := move(dir, pid); err != nil {
		m.removeFolder(dir)
		return api.Subject{}, fmt.Errorf("move process %d into the cgroup %s: %w", pid, rel, err)
	}
	return api.Subject{Kind: api.KindCgroup, ID: rel}, nil
}

func (m *Maker) makeCgroups(dirs ...string) error {
	m.folders.Lock()
	defer m.folders.Unlock()
	for _, dir := range dirs {
		if err := makeCgroup(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeCgroup makes a cgroup, if it does not exist, that everybody may enter, whatever the umask: programs read the
// files of their own cgroup.
func makeCgroup(dir string) error {
	if err := cpu.MakeReadable(dir); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func move(dir string, pid int) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// Leave moves the processes in a folder of netnice's own back to their former cgroup, and removes the folder. It logs a
// failure; a later Sweep removes the folder.
func (m *Maker) Leave(s *desired.Scope, dir string) {
	if !s.Made || dir == "" {
		return
	}
	root, err := m.Resolver.CgroupRoot()
	if err != nil {
		m.Log.Warn("a process stays in netnice's cgroup", "cgroup", dir, "err", err)
		return
	}
	to := filepath.Join(root, s.Origin)
	if _, err := identity.CgroupID(to); err != nil {
		to = root
	}
	const tries = 5 // a process that forks meanwhile leaves a child behind
	for range tries {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || len(data) == 0 {
			break
		}
		for line := range strings.Lines(string(data)) {
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				continue
			}
			if err := move(to, pid); err != nil && !errors.Is(err, unix.ESRCH) {
				m.Log.Warn("a process stays in netnice's cgroup", "pid", pid, "cgroup", dir, "err", err)
			}
		}
	}
	m.removeFolder(dir)
}

// removeFolder removes an empty cgroup, and the folder around it once that is empty too. A cgroup that is in use stays.
func (m *Maker) removeFolder(dir string) {
	m.folders.Lock()
	defer m.folders.Unlock()
	if os.Remove(dir) == nil {
		_ = os.Remove(filepath.Dir(dir))
	}
}

// Sweep removes the empty folders that an earlier daemon left, except those in use, unless one is just being made.
func (m *Maker) Sweep(inUse func() map[string]bool) {
	root, err := m.Resolver.CgroupRoot()
	if err != nil || !m.TryLock() {
		return
	}
	defer m.Unlock()
	folder := filepath.Join(root, m.Folder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	used := inUse()
	for _, e := range entries {
		dir := filepath.Join(folder, e.Name())
		if e.IsDir() && strings.HasPrefix(e.Name(), RunPrefix) && !used[dir] {
			m.removeFolder(dir)
		}
	}
}

// IsEmpty reports whether no process is left in a cgroup and below it.
func IsEmpty(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && strings.Contains(string(data), "populated 0")
}
