package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

// Settings that an administrator makes for the whole machine override the settings of limits. They have a file of their
// own. The file stays when the daemon leaves, also a daemon on demand with its last limit, and goes with netnice down.

const (
	systemName    = "system.json"
	systemVersion = 1
)

// machineWide holds the settings for the whole machine, zero = none.
type machineWide struct {
	InputMeterOff bool `json:"input_meter_off,omitempty"` // received traffic counts in no total
}

// systemState is the content of the file.
type systemState struct {
	Version int `json:"version"`
	machineWide
}

// Check refuses nothing: both values are valid.
func (s *systemState) Check() error { return nil }

func (d *Daemon) systemPath() string { return filepath.Join(d.opts.StateDir, systemName) }

// saveSystem writes the file, or removes it while nothing is set. A failure is noted, and the daemon tries again. The
// caller holds d.mu.
func (d *Daemon) saveSystem() {
	d.files.SaveObject(d.systemPath(), d.system == machineWide{}, systemState{Version: systemVersion, machineWide: d.system})
}

// takeOverSystem takes over these settings from the file. It runs before limits are adopted.
func (d *Daemon) takeOverSystem() error {
	var s systemState
	if found, err := d.files.LoadObject(d.systemPath(), systemVersion, &s); !found {
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

// changeSystem brings the settings into force: in the kernel, then in the file. An error leaves both unchanged. A
// failure to write the file is no error (unwritten.go). The caller holds d.mu.
func (d *Daemon) changeSystem(next machineWide) error {
	defer d.observe.Outdate()
	before := d.system
	d.system = next
	d.touchShared()
	if err := d.applyTotals(); err != nil {
		d.system = before
		d.touchShared()
		return errors.Join(err, d.applyTotals())
	}
	d.saveSystem()
	d.peers.Wake() // updates preallocated nodes
	return nil
}

// applyTotals sets all nodes in the kernel that limit both directions together. The caller holds d.mu.
func (d *Daemon) applyTotals() error {
	for _, n := range d.nodes.Sorted() {
		if !n.Holding().HasTotal() {
			continue
		}
		if err := d.apply(n); err != nil {
			return err
		}
	}
	return nil
}

// specOf returns a node as the kernel should have it, with the settings for the whole machine. The caller holds d.mu.
func (d *Daemon) specOf(n *node) enforce.NodeSpec {
	return plan.Spec(n.planned(), &n.Wanted, d.machine())
}

// requestedOf is limit.OfNode for a node that another daemon has left. While the meter of the whole machine is
// off, it is unknown whether an owner had switched off the meter of the node, too. The caller holds d.mu, or is the
// only user of the daemon yet.
func (d *Daemon) requestedOf(spec enforce.NodeSpec) limit.Owners {
	if d.system.InputMeterOff {
		spec.MeterOff = false
	}
	return limit.OfNode(spec)
}

// machine returns the settings for the whole machine, for the plan. The caller holds d.mu.
func (d *Daemon) machine() plan.Machine { return plan.Machine{InputMeterOff: d.system.InputMeterOff} }

// meterWarnings warns that a total counts only sent traffic, if the caller sets a total or has it count received
// traffic.
func (d *Daemon) meterWarnings(asked api.Wish, want limit.Limit) []string {
	counts := asked.InputMeter != nil && *asked.InputMeter || asked.TotalBytesPerSec != nil && !want.MeterOff
	if !d.system.InputMeterOff || want.Total == 0 || !counts {
		return nil
	}
	return []string{"the input meter of the whole machine is off: only what is sent counts in the total, until: sudo netnice system --input-meter=on"}
}
