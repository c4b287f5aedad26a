package cpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
)

// Group is the cgroup in which a process and its descendants have their share.
type Group struct {
	// Dir is the group's folder of the CPU controller, or the folder of Unit. A folder of netnice's own is below the
	// folder in which the process was, so that the bounds of that folder still hold.
	Dir string `json:"dir"`
	// Enabled says that the controller has to be switched on for Dir and its neighbours. It is switched
	// off with the last of netnice's groups there.
	Enabled bool `json:"enabled,omitempty"`
	// Unit is a scope of systemd, beside the unit in which the process was; Origin is the folder of that unit.
	// "" = a folder of netnice's own.
	Unit   string `json:"unit,omitempty"`
	Slice  string `json:"slice,omitempty"`
	Origin string `json:"origin,omitempty"`
}

const groupPrefix = "netnice-cpu-"

// Machine makes groups. Its methods may not be called concurrently for one group.
type Machine struct {
	hierarchy
	scopes Scopes
	driver driver
}

// Find finds the CPU controller of this machine. The error is enforce.ErrNotSupported if there is none.
func Find(scopes Scopes) (*Machine, error) {
	h, err := findHierarchy()
	if err != nil {
		return nil, err
	}
	return &Machine{hierarchy: h, scopes: scopes}, nil
}

// Place returns the group that a process will have, and makes nothing.
func (m *Machine) Place(pid int) (Group, error) {
	at, err := m.of(pid)
	if err != nil {
		return Group{}, err
	}
	name := groupPrefix + strconv.Itoa(pid)
	if m.scopes.Running() && !inOurs(at) {
		// The name differs each time, because systemd takes a while to forget the last scope.
		name += "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
		return m.scopeOf(name, at), nil
	}
	return Group{Dir: filepath.Join(at, name), Enabled: m.v2 && !m.offers(at, "cgroup.subtree_control")}, nil
}

func inOurs(dir string) bool { return strings.Contains(dir, "/"+groupPrefix) }

// Make makes the group with the share, and moves the process and its running descendants into it, and the processes
// in also. It leaves and counts those that are in another group than the process.
// Make keeps the existing parts of the group, so that an interrupted call can be repeated.
func (m *Machine) Make(ctx context.Context, g *Group, pid int, s Share, also ...int) (elsewhere int, err error) {
	if g.Unit != "" {
		err = m.startScope(ctx, g, pid, s)
	} else {
		err = m.makeFolder(ctx, g, s)
	}
	if err == nil {
		elsewhere, err = m.fill(g, pid, also)
	}
	if err != nil {
		err = errors.Join(err, m.Dissolve(context.WithoutCancel(ctx), *g))
	}
	return elsewhere, err
}

func (m *Machine) makeFolder(ctx context.Context, g *Group, s Share) error {
	err := MakeReadable(g.Dir)
	switch {
	case errors.Is(err, unix.EROFS): // usual in a container
		return fmt.Errorf("make a group: %w: %w", err, enforce.ErrNotSupported)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return fmt.Errorf("make a group: %w", err)
	}
	if m.v2 {
		if err := m.enable(*g); err != nil {
			return err
		}
	}
	return m.Set(ctx, *g, s)
}

// MakeReadable makes a folder that everybody may enter, with any umask. Programs in a group read
// its files, for example to know how many processors they have.
func MakeReadable(dir string) error {
	const mode = 0o755
	if err := os.Mkdir(dir, mode); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// enable switches the controller on in a folder of version 2. It fails where other controllers need domain groups,
// or where the parent does not offer the controller.
func (m *Machine) enable(g Group) error {
	parent := filepath.Dir(g.Dir)
	if parent != m.mount {
		// Only beside a threaded group may processes stay in the parent, and other limits on them still hold.
		if err := write(g.Dir, "cgroup.type", "threaded"); err != nil {
			return fmt.Errorf("divide the processors within %s: %w: %w", parent, err, enforce.ErrNotSupported)
		}
	}
	if m.offers(parent, "cgroup.subtree_control") {
		return nil
	}
	if !m.offers(parent, "cgroup.controllers") {
		return fmt.Errorf("the CPU controller is not there in %s; whoever manages it has to switch it on (cgroup.subtree_control): %w", parent, enforce.ErrNotSupported)
	}
	if err := write(parent, "cgroup.subtree_control", "+cpu"); err != nil {
		return fmt.Errorf("switch the CPU controller on in %s: %w: %w", parent, err, enforce.ErrNotSupported)
	}
	return nil
}

// fill moves processes until none is left to be moved, because a process that forks meanwhile leaves a child behind.
func (m *Machine) fill(g *Group, pid int, also []int) (elsewhere int, err error) {
	from := g.from()
	const tries = 20
	for range tries {
		tree, err := Tree(pid)
		if err != nil {
			return 0, err
		}
		tree = append(tree, also...)
		if len(tree) == 0 {
			return 0, fmt.Errorf("process %d has ended: %w", pid, unix.ESRCH)
		}
		moved := 0
		elsewhere = 0
		for _, p := range tree {
			at, err := m.of(p)
			switch {
			case err != nil || at == g.Dir || strings.HasPrefix(at, g.Dir+"/"): // the process has ended, or is in the group
			case at != from:
				elsewhere++
			default:
				switch err := write(g.Dir, "cgroup.procs", strconv.Itoa(p)); {
				case err == nil:
					moved++
				case !errors.Is(err, unix.ESRCH):
					return 0, fmt.Errorf("move process %d: %w", p, err)
				}
			}
		}
		if moved == 0 {
			return elsewhere, nil
		}
	}
	return 0, fmt.Errorf("process %d starts others as fast as they can be moved; try again when it starts fewer", pid)
}

// from returns the folder in which the group's processes were.
func (g *Group) from() string {
	if g.Unit != "" {
		return g.Origin
	}
	return filepath.Dir(g.Dir)
}

// putBack moves a group's processes to the folder to.
func (m *Machine) putBack(g Group, to string) error {
	const tries = 20
	for range tries {
		pids := procs(g.Dir)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if err := write(to, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("put process %d back: %w", pid, err)
			}
		}
	}
	return nil
}

// leaving is how often Dissolve tries again to remove a group that still has ending processes.
const leaving = 100

// Dissolve puts a group's processes back into their previous folder and removes the group. A missing group is no error.
func (m *Machine) Dissolve(ctx context.Context, g Group) error {
	to := g.from()
	if g.Unit != "" && !isDir(to) {
		// The unit that they came from has ended without them, so they stay in their scope, without a limit.
		return m.freeScope(ctx, g)
	}
	if err := m.putBack(g, to); err != nil {
		return err
	}
	if g.Unit != "" {
		return nil // systemd removes an empty scope
	}
	err := os.Remove(g.Dir)
	for range leaving {
		if !errors.Is(err, unix.EBUSY) && !isDir(g.Dir) {
			break
		}
		time.Sleep(time.Millisecond) // an ending process still occupies the group, and is in no list
		if err := m.putBack(g, to); err != nil {
			return err
		}
		err = os.Remove(g.Dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a group: %w", err)
	}
	if g.Enabled && !m.wanted(to) {
		if err := write(to, "cgroup.subtree_control", "-cpu"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("switch the CPU controller off in %s: %w", to, err)
		}
	}
	return nil
}

func procs(dir string) (pids []int) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // missing if the group has gone
	if errors.Is(err, unix.EOPNOTSUPP) {
		text, _ = os.ReadFile(filepath.Join(dir, "cgroup.threads")) // a threaded group lists only its threads
	}
	for line := range strings.Lines(string(text)) {
		pid, err2 := strconv.Atoi(strings.TrimSpace(line))
		if err2 != nil {
			continue
		}
		if err != nil {
			thread, err := procfs.NewProc(pid)
			if err != nil {
				continue
			}
			status, err := thread.NewStatus()
			if err != nil {
				continue
			}
			if pid = status.TGID; slices.Contains(pids, pid) {
				continue
			}
		}
		pids = append(pids, pid)
	}
	return pids
}

// wanted reports whether a child of a folder of version 2 still has a share, made by anybody.
func (m *Machine) wanted(dir string) bool {
	children, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, c := range children {
		if !c.IsDir() {
			continue
		}
		ceiling, err1 := os.ReadFile(filepath.Join(dir, c.Name(), "cpu.max"))
		weight, err2 := os.ReadFile(filepath.Join(dir, c.Name(), "cpu.weight"))
		if err1 == nil && !strings.HasPrefix(string(ceiling), "max") || err2 == nil && strings.TrimSpace(string(weight)) != "100" {
			return true
		}
	}
	return false
}

// Members lists the processes in a group, and in the groups within it.
func (m *Machine) Members(g Group) (pids []int) {
	_ = filepath.WalkDir(g.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			pids = append(pids, procs(path)...)
		}
		return nil // a folder may go meanwhile
	})
	return pids
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// write writes a value to a file of the controller. The error is the kernel's answer.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Online returns the number of processors.
func Online() int { return runtime.NumCPU() }

// CapacityPercent returns the total share that can be promised, in per cent of one processor.
func (m *Machine) CapacityPercent() float64 { return float64(MostPower * Online()) }
