package adaptation

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

// The state file.
const (
	FileName     = "adapt.json"
	StateVersion = 4 // version 1 has no areas, 2 no areas of rules, 3 no bound of the backlog
)

// Saved is the content of the state file: the hosts and areas that are followed. Their limits are in the file of all
// limits.
type Saved struct {
	Version int      `json:"version"`
	Adapted []*entry `json:"adapted"`
	Areas   []*area  `json:"areas,omitempty"`
}

// Rewrite calls f with a function that writes the file, unless Halt was called.
func (t *Table) Rewrite(f func(save func())) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refuse == nil {
		f(t.save)
	}
}

// save has the host write the file. The caller holds t.mu.
func (t *Table) save() {
	s := &Saved{Version: StateVersion}
	for _, a := range t.list {
		s.Adapted = append(s.Adapted, a)
	}
	for _, a := range t.areas {
		s.Areas = append(s.Areas, a)
	}
	t.host.Save(len(s.Adapted)+len(s.Areas) == 0, s)
}

// Adopt follows the hosts and areas of an earlier daemon whose limits came back. It returns the limits on hosts that
// nobody has named: a program sent there.
func (t *Table) Adopt() (met []api.Subject, err error) {
	var s Saved
	if found, err := t.host.Load(&s); !found {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range s.Adapted {
		a.fillBacklog()
		_, rate, ok := t.host.LimitOn(a.subject())
		if !ok {
			continue
		}
		if err := t.host.BoundBacklog(a.subject(), a.BacklogNS); err != nil {
			t.log.Warn("what is sent to a host may wait for long", "address", a.Address.String(), "err", err)
		}
		if a.Area != "" {
			met = append(met, a.subject())
		}
		a.state, a.busyAt = adapt.State{Mode: adapt.ModeDelay, Rate: float64(rate)}, time.Now()
		t.list[a.key()] = a
	}
	for _, a := range s.Areas {
		a.fillBacklog()
		if _, _, ok := t.host.LimitOn(a.subject()); !ok {
			continue
		}
		a.began, a.silent = map[netip.Addr]bool{}, map[netip.Addr]time.Time{}
		t.areas[a.key()] = a
	}
	t.save()
	return met, nil
}

// fillBacklog replaces a missing bound by the default; an older version of the file has none.
func (h *settings) fillBacklog() {
	if h.BacklogNS == 0 {
		h.BacklogNS = defaultBacklog
	}
}

// Check refuses content that no daemon writes.
func (s *Saved) Check() error {
	for i, a := range s.Adapted {
		if a == nil || !a.Address.IsValid() || a.Address.Zone() != "" {
			return fmt.Errorf("host %d has no address", i+1)
		}
		if err := a.check(); err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
	}
	for i, a := range s.Areas {
		if a == nil {
			return fmt.Errorf("area %d is empty", i+1)
		}
		if _, _, err := destination.Parse(a.Host); err != nil {
			return fmt.Errorf("area %d: %w", i+1, err)
		}
		if err := a.check(); err != nil {
			return fmt.Errorf("area %d: %w", i+1, err)
		}
	}
	return nil
}

// check refuses a share that cannot be kept. Earlier releases had no bound on rates: check reduces one above the
// highest to the highest.
func (h *settings) check() error {
	for _, rate := range []*uint64{&h.Start, &h.Least, &h.Most} {
		*rate = min(*rate, units.MaxRate)
	}
	if h.SharePPM == 0 || h.SharePPM > limit.WholePPM {
		return fmt.Errorf("a share of %d millionths is out of range", h.SharePPM)
	}
	if h.BacklogNS != 0 && (h.BacklogNS < leastBacklog || h.BacklogNS > mostBacklog) {
		return fmt.Errorf("a backlog of %d ns is out of range", h.BacklogNS)
	}
	return nil
}
