package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/identity"
)

// A daemon may run and not be found on its socket: /run was emptied, or a file system is mounted over it. The daemon
// makes the socket again within seconds. Commands that do not wait for that name the daemon's process, which the kernel
// knows by the daemon's locks.

// place returns where the daemon of this command is.
func (a *App) place(stateDir string) DaemonPlace {
	return DaemonPlace{Socket: a.socket, StateDir: stateDir, PinDir: a.PinDir}
}

// running finds the daemon that holds one of the locks.
func (a *App) running(stateDir string) (RunningDaemon, bool) {
	return a.System.Daemon(a.place(stateDir))
}

// runningSilent is running for the daemon of this socket, after a call that has failed.
func (a *App) runningSilent(failed error, stateDir string) (RunningDaemon, bool) {
	if !errors.Is(failed, client.ErrNoDaemon) {
		return RunningDaemon{}, false
	}
	r, ok := a.running(stateDir)
	return r, ok && a.listensHere(r)
}

// listensHere reports whether a daemon is known to be the one of this socket.
func (a *App) listensHere(r RunningDaemon) bool {
	path, err := filepath.Abs(a.socket)
	return err == nil && r.Socket == path
}

// unreachable describes a daemon that runs and does not listen on the socket.
func (a *App) unreachable(r RunningDaemon) (message, hint string) {
	if r.Socket != "" && !a.listensHere(r) {
		return fmt.Sprintf("nobody listens on %s; the daemon that runs (pid %d) listens on %s", a.socket, r.PID, r.Socket),
			"netnice --socket " + r.Socket + " ..."
	}
	return fmt.Sprintf("the daemon runs (pid %d), but nobody listens on %s: it is coming up, or the socket was removed, and is there again within seconds", r.PID, a.socket),
		"run the command again; if that does not help:\n" +
			"sudo netnice up --replace  puts another daemon in its place; limits hold meanwhile\n" +
			"sudo netnice down  ends it and lifts all limits"
}

// onlyRoot returns the error for a user's command that needs a daemon where none answers.
func (a *App) onlyRoot(cause error) error {
	f := &failure{message: "no daemon is running, and only root can start one", hint: "sudo netnice up", code: exitNoDaemon, cause: cause}
	if r, ok := a.running(DefaultStateDir); ok {
		f.message, f.hint = a.unreachable(r)
	}
	return f
}

// reached waits a while for a daemon that runs to be found on its socket.
func (a *App) reached(ctx context.Context, c *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for {
		if a.answers(ctx, c) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pollInterval):
		}
	}
}

// end ends a daemon by a signal, and waits until it has ended.
func (a *App) end(ctx context.Context, r RunningDaemon, signal syscall.Signal, stateDir string) error {
	if err := a.System.SignalDaemon(r, signal, a.place(stateDir)); err != nil {
		return err
	}
	if now, ok := a.running(stateDir); !ok || now.PID != r.PID {
		return nil // the daemon had ended before, and another process may have its id
	}
	return a.gone(ctx, r.PID)
}

// inService reports whether a daemon is that of the service.
func (a *App) inService(pid int) bool {
	return identity.InUnit(a.proc, pid, serviceName)
}

// endSilent asks a daemon that does not listen on its socket to end, and kills it if it does not end. The limits of a
// killed daemon stay in the kernel, and the caller lifts them.
func (a *App) endSilent(ctx context.Context, r RunningDaemon, stateDir string) error {
	if a.inService(r.PID) {
		return failWith(exitFailed, "sudo systemctl stop "+serviceName+"; sudo netnice down", "the daemon (pid %d) is not found on %s, and systemd would start it again", r.PID, a.socket)
	}
	a.warn([]string{fmt.Sprintf("the daemon (pid %d) is not found on %s, and is ended by a signal", r.PID, a.socket)})
	polite, cancel := context.WithTimeout(ctx, politeTimeout)
	defer cancel()
	if a.end(polite, r, syscall.SIGTERM, stateDir) == nil {
		return nil
	}
	return a.end(ctx, r, syscall.SIGKILL, stateDir)
}

// unused returns netnice's devices that no netnice uses any more, for root only. With remove it removes them.
func (a *App) unused(ctx context.Context, remove bool) []string {
	if a.System.EUID() != 0 {
		return nil
	}
	list, err := a.Parts.Unused(ctx, remove)
	if err != nil && remove {
		a.warn([]string{"not all devices that earlier daemons have left are gone: " + err.Error()})
	}
	return list
}

// leftText describes such devices.
func leftText(devices []string) string {
	return strings.Join(devices, ", ") + " of an earlier daemon are left, and nobody uses them"
}

// removeUnused removes such devices, and prints their names.
func (a *App) removeUnused(ctx context.Context) (removed bool) {
	list := a.unused(ctx, true)
	if len(list) > 0 {
		fmt.Fprintf(a.Out, "removed %s: of an earlier daemon, and used by nobody\n", strings.Join(list, ", "))
	}
	return len(list) > 0
}
