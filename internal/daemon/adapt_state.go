package daemon

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/netnice/netnice/internal/adapt"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

const (
	adaptName         = "adapt.json"
	adaptStateVersion = 4 // version 1 has no areas, 2 no areas of rules, 3 no bound of the backlog
)

// adaptState is the content of the file: the hosts and areas that are followed. Their limits are in the file of all
// limits.
type adaptState struct {
	Version int          `json:"version"`
	Adapted []*adapted   `json:"adapted"`
	Areas   []*adaptArea `json:"areas,omitempty"`
}

func (d *Daemon) adaptPath() string { return filepath.Join(d.opts.StateDir, adaptName) }

// saveAdapts writes the file; without any host or area it removes the file. It notes a failure, and the daemon tries
// again. The caller holds d.adapts.mu.
func (d *Daemon) saveAdapts() {
	s := adaptState{Version: adaptStateVersion}
	for _, a := range d.adapts.list {
		s.Adapted = append(s.Adapted, a)
	}
	for _, a := range d.adapts.areas {
		s.Areas = append(s.Areas, a)
	}
	d.saveBeside(d.adaptPath(), len(s.Adapted)+len(s.Areas) == 0, s)
}

// noteMet notes that a limit on what is sent to a host exists only because the host received traffic.
func (d *Daemon) noteMet(id uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[id]; n != nil && n.to != nil {
		n.to.met, d.dirty = true, true
	}
}

// noteMayBeMet notes the same of each limit on one host, if no record says whether somebody has named the host.
func (d *Daemon) noteMayBeMet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nodes {
		if n.to == nil || n.own() || n.to.scope != nil {
			continue
		}
		if s := n.to.selector; len(s.Prefixes) == 1 && s.Prefixes[0].IsSingleIP() && len(s.Names) == 0 && s.List == "" {
			n.to.met, d.dirty = true, true
		}
	}
}

// takeOverAdapts follows the hosts and areas of an earlier daemon. The file of the limits says which hosts nobody has
// named. If an earlier release has written that file, adapt.json says so.
func (d *Daemon) takeOverAdapts(limitsSayMet bool) error {
	var s adaptState
	found, err := d.readBeside(d.adaptPath(), adaptStateVersion, &s)
	if !found {
		if d.besides[d.adaptPath()] != nil && !limitsSayMet {
			d.noteMayBeMet()
		}
		return err
	}
	d.adapts.mu.Lock()
	defer d.adapts.mu.Unlock()
	for _, a := range s.Adapted {
		a.fillBacklog()
		t := adaptTraffic{d: d, a: a}
		if t.find() != nil {
			continue // its limit did not come back
		}
		if err := d.boundBacklog(a.subject(), a.BacklogNS); err != nil {
			d.log.Warn("what is sent to a host may wait for long", "address", a.Address.String(), "err", err)
		}
		if a.Area != "" && !limitsSayMet {
			d.noteMet(t.id)
		}
		a.state, a.busyAt = adapt.State{Mode: adapt.ModeDelay, Rate: float64(t.saved)}, time.Now()
		d.adapts.list[a.key()] = a
	}
	for _, a := range s.Areas {
		a.fillBacklog()
		if _, ok := d.limitOn(a.subject()); !ok {
			continue
		}
		a.began, a.silent = map[netip.Addr]bool{}, map[netip.Addr]time.Time{}
		d.adapts.areas[a.key()] = a
	}
	d.saveAdapts()
	return nil
}

// Check refuses content that no daemon writes.
func (s *adaptState) Check() error {
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
func (h *adaptHow) check() error {
	for _, rate := range []*uint64{&h.Start, &h.Least, &h.Most} {
		*rate = min(*rate, units.MaxRate)
	}
	if h.SharePPM == 0 || h.SharePPM > limit.WholePPM {
		return fmt.Errorf("a share of %d millionths is out of range", h.SharePPM)
	}
	if h.BacklogNS != 0 && (h.BacklogNS < adaptBacklogLeast || h.BacklogNS > adaptBacklogMost) {
		return fmt.Errorf("a backlog of %d ns is out of range", h.BacklogNS)
	}
	return nil
}
