package daemon

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cpu"
)

// An administrator may choose how a CPU share is kept. Slots need a program that ends each of them in time. A deadline
// is possible only for a process of one thread.

// keepSlots passes the groups with slots to the mechanism that keeps them. The caller holds d.powers.mu.
func (d *Daemon) keepSlots() error {
	if d.powers.processors == nil {
		return nil
	}
	groups := make(map[string]cpu.Share)
	for _, p := range d.powers.list {
		if s := p.share(); s.Exact {
			groups[p.Group.Dir] = s
		}
	}
	return d.powers.processors.KeepSlots(groups)
}

// keepStrict gives a process its deadline if it is to have one and can, or takes the deadline back. It writes the state
// after it has read the scheduling policy and before it changes that. The caller holds d.powers.mu.
func (d *Daemon) keepStrict(processors Processors, p *powered) error {
	ceiling, priority := p.holding()
	if !ceiling.Strict || priority < 0 {
		return d.loosen(processors, p)
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
		d.savePowers()
	}
	if err := processors.Strict(p.PID, p.share()); err != nil {
		if back := d.loosen(processors, p); back != nil {
			d.log.Warn("a deadline is not taken back", "pid", p.PID, "err", back)
		}
		return err
	}
	return nil
}

// loosen takes a deadline back. The caller holds d.powers.mu, and writes the state.
func (d *Daemon) loosen(processors Processors, p *powered) error {
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
func takeBack(processors Processors, p *powered) error {
	if p.Was == nil || !slices.Contains(processors.Members(p.Group), p.PID) {
		return nil
	}
	return processors.Loose(p.PID, *p.Was)
}

// keepDeadline notes why a requested deadline is not in force. It reports whether the process got or lost a deadline,
// in which case the state has to be written.
func (d *Daemon) keepDeadline(processors Processors, p *powered) (changed bool) {
	had := p.Was != nil
	p.noDeadline = d.keepStrict(processors, p)
	return had != (p.Was != nil)
}

// smooth applies the parts of a share that its group cannot enforce. The caller holds d.powers.mu.
func (d *Daemon) smooth(processors Processors, p *powered) {
	if ceiling, _ := p.holding(); ceiling == (powerWish{}) && p.guaranteed() > 0 {
		d.hasExtra()
	}
	if d.keepDeadline(processors, p) {
		d.savePowers()
	}
}
