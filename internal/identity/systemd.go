package identity

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	sdbus "github.com/coreos/go-systemd/v22/dbus"
	sdutil "github.com/coreos/go-systemd/v22/util"
)

// SystemBus is the systemd of the running machine, asked over D-Bus.
type SystemBus struct{}

// Running reports whether systemd is the service manager (sd_booted).
func (SystemBus) Running() bool { return sdutil.IsRunningSystemd() }

// ControlGroup implements Systemd.
func (SystemBus) ControlGroup(ctx context.Context, unit string) (string, error) {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	state, err := conn.GetUnitPropertyContext(ctx, unit, "LoadState")
	if err != nil {
		return "", fmt.Errorf("load state of %s: %w", unit, err)
	}
	if load, _ := state.Value.Value().(string); load == "not-found" {
		return "", ErrNotFound
	}
	prop, err := conn.GetUnitTypePropertyContext(ctx, unit, unitType(unit), "ControlGroup")
	if err != nil {
		return "", fmt.Errorf("cgroup of %s: %w", unit, err)
	}
	path, _ := prop.Value.Value().(string)
	return path, nil
}

// StartScope implements Systemd; it returns when the process has been moved.
func (SystemBus) StartScope(ctx context.Context, name, slice string, pid int) error {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	props := []sdbus.Property{
		sdbus.PropDescription(fmt.Sprintf("netnice: process %d", pid)),
		sdbus.PropPids(uint32(pid)),
	}
	if slice != "" {
		props = append(props, sdbus.PropSlice(slice))
	}
	done := make(chan string, 1)
	if _, err := conn.StartTransientUnitContext(ctx, name, "fail", props, done); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("start %s: systemd reports %q", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", name, ctx.Err())
	}
}

// unitType returns the D-Bus interface of a unit: Service for x.service.
func unitType(unit string) string {
	t := strings.TrimPrefix(filepath.Ext(unit), ".")
	return strings.ToUpper(t[:1]) + t[1:]
}
