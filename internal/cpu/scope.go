package cpu

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
)

// Scopes is the service manager, where one manages the tree of cgroups.
type Scopes interface {
	Running() bool
	// StartScope moves processes into a new scope unit; slice may be "".
	StartScope(ctx context.Context, name, slice string, pids []int, props ...sdbus.Property) error
	// SetProperties changes a unit until it ends.
	SetProperties(ctx context.Context, unit string, props ...sdbus.Property) error
}

// patience bounds the time of a call to systemd.
const patience = 10 * time.Second

// scopeOf returns the group of a process that is in the folder at.
func (m *Machine) scopeOf(name, at string) Group {
	rel := "/" + strings.Trim(strings.TrimPrefix(at, m.mount), "/")
	slice := identity.OuterSlice(rel)
	unit := name + ".scope"
	return Group{
		Dir:  filepath.Join(m.mount, identity.SliceFolder(slice), unit),
		Unit: unit, Slice: slice, Origin: at,
	}
}

// startScope starts the scope with all processes of the tree. Make moves those that are forked meanwhile afterwards.
func (m *Machine) startScope(ctx context.Context, g *Group, pid int, s Share) error {
	if isDir(g.Dir) {
		return m.Set(ctx, *g, s)
	}
	tree, err := Tree(pid)
	if err != nil {
		return err
	}
	pids := tree[:0:0]
	for _, p := range tree {
		if at, err := m.of(p); err == nil && at == g.Origin {
			pids = append(pids, p)
		}
	}
	if len(pids) == 0 {
		return fmt.Errorf("process %d has ended: %w", pid, unix.ESRCH)
	}
	// Delegate is set because a process in the scope that gets a share of its own gets a folder within the scope.
	props := append(scopeProps(s), sdbus.Property{Name: "Delegate", Value: dbus.MakeVariant(true)})
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.scopes.StartScope(ctx, g.Unit, g.Slice, pids, props...); err != nil {
		return err
	}
	return m.setMakeUp(*g, min(s.SliceNS, uint64(makeUp)))
}

func (m *Machine) setScope(ctx context.Context, g Group, s Share) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return m.scopes.SetProperties(ctx, g.Unit, scopeProps(s)...)
}

func (m *Machine) freeScope(ctx context.Context, g Group) error {
	if !isDir(g.Dir) {
		return nil
	}
	if err := m.setScope(ctx, g, Share{Weight: OrdinaryWeight}); err != nil {
		return fmt.Errorf("free the processes of %s: %w", g.Unit, err)
	}
	return nil
}

func scopeProps(s Share) []sdbus.Property {
	const none = ^uint64(0)
	quota, period := none, none
	if s.SliceNS != 0 {
		quota = s.SliceNS * 1_000_000 / s.PeriodNS // us in each second
		period = us(s.PeriodNS)
	}
	return []sdbus.Property{
		{Name: "CPUQuotaPerSecUSec", Value: dbus.MakeVariant(quota)},
		{Name: "CPUQuotaPeriodUSec", Value: dbus.MakeVariant(period)},
		{Name: "CPUWeight", Value: dbus.MakeVariant(weightV2(s.Weight))},
	}
}
