package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// What an administrator sets for the whole machine holds whatever limits say, and is in a file of its own: it stays
// when the daemon leaves, also one on demand with its last limit, and goes with netnice down.

const (
	systemName    = "system.json"
	systemVersion = 1
)

// machineWide is what is set for the whole machine, zero = nothing.
type machineWide struct {
	InputMeterOff bool `json:"input_meter_off,omitempty"` // what is received counts in no total
}

// systemState is the file.
type systemState struct {
	Version int `json:"version"`
	machineWide
}

// check refuses nothing: either is right.
func (s *systemState) check() error { return nil }

func (d *Daemon) systemPath() string { return filepath.Join(d.opts.StateDir, systemName) }

// saveSystem writes the file; while nothing is set there is none. A failure is noted, and it is tried
// again. The caller holds d.mu.
func (d *Daemon) saveSystem() {
	d.saveBeside(d.systemPath(), d.system == machineWide{}, systemState{Version: systemVersion, machineWide: d.system})
}

// adoptSystem takes up again what was set, before limits are.
func (d *Daemon) adoptSystem() error {
	var s systemState
	if found, err := d.readBeside(d.systemPath(), systemVersion, &s); !found {
		return err
	}
	d.system = s.machineWide
	return nil
}

// System implements apiserver.Backend.
func (d *Daemon) System(context.Context) (api.System, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.system.api(), nil
}

func (m machineWide) api() api.System {
	return api.System{Version: api.Version, InputMeter: !m.InputMeterOff}
}

// SetSystem implements apiserver.Backend.
func (d *Daemon) SetSystem(_ context.Context, by auth.Actor, req api.SystemRequest) (api.System, error) {
	if err := auth.Check(by, auth.Configure, auth.Target{}); err != nil {
		return api.System{}, err
	}
	if req.InputMeter == nil {
		return api.System{}, &api.Error{Code: api.CodeBadRequest, Message: "nothing to set for the whole machine", Hint: "netnice system --input-meter=off"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return api.System{}, leaving()
	}
	next := machineWide{InputMeterOff: !*req.InputMeter}
	answer := next.api()
	answer.Changed = next != d.system
	if req.DryRun || !answer.Changed {
		return answer, nil
	}
	if err := d.changeSystem(next); err != nil {
		return api.System{}, err
	}
	answer.Warnings = d.unwrittenWarnings(d.systemPath(), next == machineWide{})
	d.log.Info("set for the whole machine", "input_meter", answer.InputMeter, "by", by.UID)
	return answer, nil
}

// changeSystem has that hold from now on: in the kernel, then in the file. An error leaves both as they were; that the
// file cannot be written is none (unwritten.go). The caller holds d.mu.
func (d *Daemon) changeSystem(next machineWide) error {
	defer d.sampler.outdate()
	before := d.system
	d.system = next
	if err := d.applyTotals(); err != nil {
		d.system = before
		return errors.Join(err, d.applyTotals())
	}
	d.saveSystem()
	d.wakeEach() // nodes in store
	return nil
}

// applyTotals tells the kernel of all nodes that limit both ways together. The caller holds d.mu.
func (d *Daemon) applyTotals() error {
	for _, n := range d.sorted() {
		if !n.holding().hasTotal() {
			continue
		}
		if err := d.apply(n); err != nil {
			return err
		}
	}
	return nil
}

// specOf is a node as the kernel should have it, with what holds for the whole machine. The caller holds d.mu.
func (d *Daemon) specOf(n *node) enforce.NodeSpec {
	spec := n.spec()
	spec.MeterOff = d.meterOff(n)
	return spec
}

// wishesOf is wishesOf for a node that another daemon has left. While the meter of the whole machine is off, nobody knows
// whether somebody had switched that of the node off, too. The caller holds d.mu, or nobody else knows the daemon yet.
func (d *Daemon) wishesOf(spec enforce.NodeSpec) wishes {
	if d.system.InputMeterOff {
		spec.MeterOff = false
	}
	return wishesOf(spec)
}

// meterOff reports whether what a node receives does not count in its total: as its owners want, or for the whole
// machine, whatever they want. The caller holds d.mu.
func (d *Daemon) meterOff(n *node) bool {
	w := n.holding()
	return w.meterOff() || d.system.InputMeterOff && w.hasTotal()
}

// meterWarnings tells who sets a total, or has it count what is received, that it counts only what is sent.
func (d *Daemon) meterWarnings(asked api.Wish, want wish) []string {
	counts := asked.InputMeter != nil && *asked.InputMeter || asked.TotalBytesPerSec != nil && !want.MeterOff
	if !d.system.InputMeterOff || want.Total == 0 || !counts {
		return nil
	}
	return []string{"the input meter of the whole machine is off: only what is sent counts in the total, until: sudo netnice system --input-meter=on"}
}
