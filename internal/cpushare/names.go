package cpushare

import (
	"cmp"
	"time"
)

// A share is known by the name of the program that its process runs. The process of netnice exec becomes the command
// only after it has asked for the share, and may end before the next look and leave children behind. So the table
// notes names while processes run.

// watch learns when the process of a share ends, and the name that it had then. It also schedules a reading of the
// present name. The caller holds t.mu.
func (t *Table) watch(p *entry) {
	t.host.ProgramDue()
	watch, err := t.resolver.Watch(p.PID, p.StartNS, func() {}) // Look ends the share
	if err != nil {
		t.log.Debug("no pidfd", "err", err)
		return
	}
	p.watch = watch
}

// forget takes a share out of the list. The caller holds t.mu.
func (t *Table) forget(p *entry) {
	t.learnName(p) // the name at its end
	p.watch.Stop()
	delete(t.list, p.PID)
}

// StopWatching stops the watches on the processes; their shares stay.
func (t *Table) StopWatching() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.list {
		p.watch.Stop()
	}
}

// programOf returns the name of the program that the process of a share runs, or ran last.
func (t *Table) programOf(p *entry) string {
	if p.watch.HasEnded() {
		return cmp.Or(p.watch.LastName(), p.Name)
	}
	if name, ok := t.resolver.LastName(p.PID, p.StartNS); ok {
		return name
	}
	return p.Name
}

// learnName notes that name, and reports whether it has changed. The caller holds t.mu.
func (t *Table) learnName(p *entry) (changed bool) {
	name := t.programOf(p)
	changed, p.Name = name != p.Name, name
	return changed
}

// LearnNames reads the names of shares that are no older than upTo. It reports whether there is one that is younger
// than after, whose program may not run yet.
func (t *Table) LearnNames(upTo, after time.Duration) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := false
	for _, p := range t.list {
		age := time.Since(p.Since)
		if age > upTo {
			continue
		}
		again = again || age < after
		changed = t.learnName(p) || changed
	}
	if changed {
		t.save()
	}
	return again
}
