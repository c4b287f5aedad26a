package cpushare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/limit"
)

// The state file.
const (
	FileName     = "power.json"
	StateVersion = 1 // newest version of it that this release can read
)

// Saved is the content of the state file: the requested shares and the places of their groups. It is written
// before the groups are made, so that no group is left behind whenever the daemon ends.
type Saved struct {
	Version int      `json:"version"`
	BootID  string   `json:"boot_id"`
	Powers  []*entry `json:"powers"`
}

// Rewrite calls f with a function that writes the file, unless Lift was called.
func (t *Table) Rewrite(f func(save func())) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refuse == nil {
		f(t.save)
	}
}

// save has the host write the file. The caller holds t.mu.
func (t *Table) save() {
	s := &Saved{Version: StateVersion, BootID: t.bootID}
	for _, p := range t.list {
		s.Powers = append(s.Powers, p)
	}
	outermostFirst(s.Powers)
	t.host.Save(len(s.Powers) == 0, s)
}

// Check refuses a state that no table writes.
func (s *Saved) Check() error {
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
func (w wish) valid() bool {
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

// LiftLeft removes the groups of a state that a daemon has left, where none can start. The groups of an earlier boot
// have gone with that boot.
func LiftLeft(ctx context.Context, processors Processors, s *Saved) (err error) {
	for _, p := range slices.Backward(s.Powers) { // innermost first
		err = errors.Join(err, takeBack(processors, p))
		err = errors.Join(err, processors.Dissolve(ctx, p.Group))
	}
	return err
}

// Adopt takes over the shares that an earlier daemon of this boot left. It makes the groups that the earlier
// daemon had not finished.
func (t *Table) Adopt(ctx context.Context) error {
	var s Saved
	found, err := t.host.Load(&s)
	if err != nil {
		return err
	}
	if !found {
		s = Saved{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.BootID == t.bootID && len(s.Powers) > 0 {
		processors, err := t.processors()
		if err != nil {
			t.log.Warn("shares of the processors are not taken up again", "err", err)
			s.Powers = nil
		}
		for _, p := range s.Powers {
			if t.adopt(ctx, processors, p) {
				t.list[p.PID] = p
				t.watch(p)
			}
		}
	}
	if err := t.keepSlots(); err != nil {
		t.log.Warn("slots are not kept", "err", err)
	}
	t.save()
	return nil
}

func (t *Table) adopt(ctx context.Context, processors Processors, p *entry) bool {
	members := processors.Members(p.Group)
	if len(members) == 0 && !t.resolver.Alive(p.PID, p.StartNS) {
		t.dissolveEmpty(ctx, processors, p)
		return false
	}
	pid := p.PID
	if !t.resolver.Alive(p.PID, p.StartNS) {
		pid = members[0]
	}
	if _, err := processors.Make(ctx, &p.Group, pid, p.share()); err != nil {
		t.log.Warn("a share of the processors is not taken up again", "pid", p.PID, "err", err)
		return false
	}
	t.hasExtra() // followExtras checks whether the share needs it
	return true
}
