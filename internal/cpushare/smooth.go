package cpushare

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cpu"
)

// An administrator may choose how a CPU share is kept. Slots need a program that ends each of them in time. A deadline
// is possible only for a process of one thread.

// keepSlots passes the groups with slots to the mechanism that keeps them. The caller holds t.mu.
func (t *Table) keepSlots() error {
	if t.found == nil {
		return nil
	}
	groups := make(map[string]cpu.Share)
	for _, p := range t.list {
		if s := p.share(); s.Exact {
			groups[p.Group.Dir] = s
		}
	}
	return t.found.KeepSlots(groups)
}

// keepStrict gives a process its deadline if it is to have one and can, or takes the deadline back. It writes the state
// after it has read the scheduling policy and before it changes that. The caller holds t.mu.
func (t *Table) keepStrict(processors Processors, p *entry) error {
	ceiling, priority := p.holding()
	if !ceiling.Strict || priority < 0 {
		return t.loosen(processors, p)
	}
	if !slices.Contains(processors.Members(p.Group), p.PID) {
		return fmt.Errorf("process %d has ended: %w", p.PID, unix.ESRCH) // another process may have its number
	}
	if p.Was == nil {
		was, err := processors.PolicyOf(p.PID)
		if err != nil {
			return err
		}
		p.Was = &was
		t.save()
	}
	if err := processors.Strict(p.PID, p.share()); err != nil {
		if back := t.loosen(processors, p); back != nil {
			t.log.Warn("a deadline is not taken back", "pid", p.PID, "err", back)
		}
		return err
	}
	return nil
}

// loosen takes a deadline back. The caller holds t.mu, and writes the state.
func (t *Table) loosen(processors Processors, p *entry) error {
	if p.Was == nil {
		return nil
	}
	if err := takeBack(processors, p); err != nil {
		return err
	}
	p.Was = nil
	return nil
}

// takeBack takes a deadline back from a process that lives.
func takeBack(processors Processors, p *entry) error {
	if p.Was == nil || !slices.Contains(processors.Members(p.Group), p.PID) {
		return nil
	}
	return processors.Loose(p.PID, *p.Was)
}

// keepDeadline notes why a requested deadline is not in force. It reports whether the process got or lost a deadline,
// in which case the state has to be written.
func (t *Table) keepDeadline(processors Processors, p *entry) (changed bool) {
	had := p.Was != nil
	p.noDeadline = t.keepStrict(processors, p)
	return had != (p.Was != nil)
}

// smooth applies the parts of a share that its group cannot enforce. The caller holds t.mu.
func (t *Table) smooth(processors Processors, p *entry) {
	if ceiling, _ := p.holding(); ceiling == (wish{}) && p.guaranteed() > 0 {
		t.hasExtra()
	}
	if t.keepDeadline(processors, p) {
		t.save()
	}
}
