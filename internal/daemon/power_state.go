package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

const (
	powerName         = "power.json"
	powerStateVersion = 1
)

// powerState is the content of the state file: the requested shares and the places of their groups. It is written
// before the groups are made, so that no group is left behind whenever the daemon ends.
type powerState struct {
	Version int        `json:"version"`
	BootID  string     `json:"boot_id"`
	Powers  []*powered `json:"powers"`
}

func (d *Daemon) powerPath() string { return filepath.Join(d.opts.StateDir, powerName) }

// savePowers writes the file, or removes it if there is no share. A failure is noted, and the daemon tries again. The
// caller holds d.powers.mu.
func (d *Daemon) savePowers() {
	s := powerState{Version: powerStateVersion, BootID: d.boot}
	for _, p := range d.powers.list {
		s.Powers = append(s.Powers, p)
	}
	outermostFirst(s.Powers)
	d.saveBeside(d.powerPath(), len(s.Powers) == 0, s)
}

// check refuses a state that no daemon writes.
func (s *powerState) check() error {
	for i, p := range s.Powers {
		if p == nil || p.PID <= 1 {
			return fmt.Errorf("entry %d is of no process", i+1)
		}
		for _, w := range p.Wishes {
			if !w.valid() {
				return fmt.Errorf("what is wanted for process %d is out of range", p.PID)
			}
		}
	}
	return nil
}

// valid reports whether a daemon may have written the request. The number of processors at that time is not known.
func (w powerWish) valid() bool {
	const processors = 1 << 16
	switch {
	case w.Power < cpu.LeastPower || w.Power > cpu.MostPower*processors:
		return false
	case w.SliceNS != 0 && (w.PeriodNS < limit.MinPeriodNS || w.PeriodNS > limit.MaxPeriodNS || w.SliceNS > w.PeriodNS*processors):
		return false
	case w.SlotNS != 0:
		return w.Power >= 1 && w.Power <= cpu.MostPower && w.SlotNS >= uint64(cpu.LeastSlot) && w.SlotNS <= uint64(cpu.MostSlot)
	}
	return true
}

// LiftPowers removes the groups that a daemon has left, where none can start. The groups of an earlier boot have gone
// with that boot.
func LiftPowers(ctx context.Context, stateDir string) error {
	path := filepath.Join(stateDir, powerName)
	var s powerState
	damage, err := readObject(path, powerStateVersion, &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case damage != nil:
		return stateError(path, damage)
	}
	processors, err := cpu.Find(identity.SystemBus{})
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(s.Powers) { // innermost first
		err = errors.Join(err, takeBack(processors, p))
		err = errors.Join(err, processors.Dissolve(ctx, p.Group))
	}
	return errors.Join(err, removeFile(path))
}

// adoptPowers takes over the shares that an earlier daemon of this boot left. It makes the groups that the earlier
// daemon had not finished.
func (d *Daemon) adoptPowers(ctx context.Context) error {
	var s powerState
	found, err := d.readBeside(d.powerPath(), powerStateVersion, &s)
	if err != nil {
		return err
	}
	if !found {
		s = powerState{}
	}
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	if s.BootID == d.boot && len(s.Powers) > 0 {
		processors, err := d.processors()
		if err != nil {
			d.log.Warn("shares of the processors are not taken up again", "err", err)
			s.Powers = nil
		}
		for _, p := range s.Powers {
			if d.adoptPower(ctx, processors, p) {
				d.powers.list[p.PID] = p
				d.watchPower(p)
			}
		}
	}
	if len(d.powers.list) > 0 {
		d.hadNodes.Store(true)
	}
	if err := d.keepSlots(); err != nil {
		d.log.Warn("slots are not kept", "err", err)
	}
	d.savePowers()
	return nil
}

func (d *Daemon) adoptPower(ctx context.Context, processors Processors, p *powered) bool {
	members := processors.Members(p.Group)
	if len(members) == 0 && !d.resolver.Alive(p.PID, p.StartNS) {
		d.dissolveEmpty(ctx, processors, p)
		return false
	}
	pid := p.PID
	if !d.resolver.Alive(p.PID, p.StartNS) {
		pid = members[0]
	}
	if _, err := processors.Make(ctx, &p.Group, pid, p.share()); err != nil {
		d.log.Warn("a share of the processors is not taken up again", "pid", p.PID, "err", err)
		return false
	}
	d.hasExtra() // followExtras checks whether the share needs it
	return true
}
