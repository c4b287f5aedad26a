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

// StartScope implements Systemd; it returns when the processes have been moved.
func (SystemBus) StartScope(ctx context.Context, name, slice string, pids []int, props ...sdbus.Property) error {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	ids := make([]uint32, len(pids))
	for i, pid := range pids {
		ids[i] = uint32(pid)
	}
	props = append(props, sdbus.PropDescription(fmt.Sprintf("netnice: process %d", pids[0])), sdbus.PropPids(ids...))
	if slice != "" {
		props = append(props, sdbus.PropSlice(slice))
	}
	done := make(chan string, 1)
	if _, err := conn.StartTransientUnitContext(ctx, name, "fail", props, done); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	return awaitStart(ctx, name, done)
}

// awaitStart waits until systemd says how a start has ended.
func awaitStart(ctx context.Context, name string, done <-chan string) error {
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

// Program returns the file that a service runs, ErrNotFound where systemd knows no such service.
func (SystemBus) Program(ctx context.Context, service string) (string, error) {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	state, err := conn.GetUnitPropertyContext(ctx, service, "LoadState")
	if err != nil {
		return "", fmt.Errorf("load state of %s: %w", service, err)
	}
	if load, _ := state.Value.Value().(string); load != "loaded" {
		return "", ErrNotFound
	}
	prop, err := conn.GetUnitTypePropertyContext(ctx, service, "Service", "ExecStart")
	if err != nil {
		return "", fmt.Errorf("program of %s: %w", service, err)
	}
	return firstProgram(prop.Value.Value())
}

// firstProgram returns the path in the first of a service's commands. D-Bus returns the commands as a list of structs
// that begin with the path.
func firstProgram(commands any) (string, error) {
	if list, ok := commands.([][]any); ok && len(list) > 0 && len(list[0]) > 0 {
		if path, ok := list[0][0].(string); ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("program of a service: %w", ErrNotFound)
}

// StartService makes systemd start a service, or, with again, restart it. It returns when the service is ready.
func (SystemBus) StartService(ctx context.Context, service string, again bool) error {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	start := conn.StartUnitContext
	if again {
		start = conn.RestartUnitContext
	}
	done := make(chan string, 1)
	if _, err := start(ctx, service, "replace", done); err != nil {
		return fmt.Errorf("start %s: %w", service, err)
	}
	return awaitStart(ctx, service, done)
}

// SetProperties changes a running unit until it ends or the machine is booted again.
func (SystemBus) SetProperties(ctx context.Context, unit string, props ...sdbus.Property) error {
	conn, err := sdbus.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	if err := conn.SetUnitPropertiesContext(ctx, unit, true, props...); err != nil {
		return fmt.Errorf("change %s: %w", unit, err)
	}
	return nil
}

// OuterSlice returns the slice that encloses a cgroup path, as far as the
// system's service manager owns it: "user-1000.slice" for
// "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope".
func OuterSlice(cgroup string) string {
	slice := ""
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		if !strings.HasSuffix(part, ".slice") {
			break
		}
		slice = part
	}
	return slice
}

// SliceFolder returns the folder of a slice below the mount: "/user.slice/user-1000.slice/" for
// "user-1000.slice". The name of a slice contains the names of its ancestors.
func SliceFolder(slice string) string {
	name, folder := strings.TrimSuffix(slice, ".slice"), "/"
	if name == "" || name == "-" {
		return folder
	}
	parts := strings.Split(name, "-")
	for i := range parts {
		folder += strings.Join(parts[:i+1], "-") + ".slice/"
	}
	return folder
}

// unitType returns the D-Bus interface of a unit: Service for x.service.
func unitType(unit string) string {
	t := strings.TrimPrefix(filepath.Ext(unit), ".")
	return strings.ToUpper(t[:1]) + t[1:]
}
