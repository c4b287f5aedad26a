package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

func (a *App) up() *cobra.Command {
	var f upFlags
	var alone bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the daemon, so that users can set limits",
		Long: `Start the daemon in the background and wait until it answers. Where systemd has
netnice.service and that runs the program that you call, systemd starts it, unless
--detach or flags that the service has not are given. Where one runs
already nothing changes; one that was started on demand is replaced by one that
stays, and no limit is lifted meanwhile. With --replace any is: by the program
that you call, such as a newer one, also where nobody finds it on its socket.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), writeTimeout)
			defer cancel()
			f.bySystemd = func() bool { return !alone && f.where.usual(cmd) && a.System.HasService(ctx, a.socket) }
			return a.bringUp(ctx, &f)
		},
	}
	f.where.add(a, cmd)
	f.where.addBeside(a, cmd)
	f.where.addConfig(cmd)
	dryRunFlag(cmd, &f.dryRun)
	cmd.Flags().BoolVar(&alone, "detach", false, "not by systemd: the daemon is a process by itself, with a log file")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace a daemon that runs; limits hold meanwhile")
	return cmd
}

// upFlags says how a daemon is started, and whether one that runs is replaced.
type upFlags struct {
	where           daemonFlags
	dryRun, replace bool
	bySystemd       func() bool // systemd is to start the daemon
}

// bringUp starts a daemon unless one runs that stays.
func (a *App) bringUp(ctx context.Context, f *upFlags) error {
	c := client.New(a.socket)
	defer c.Close()
	start := func(again bool) error {
		if f.bySystemd() {
			return a.startService(ctx, c, again)
		}
		return a.startUp(ctx, c, &f.where)
	}
	status, err := c.Status(ctx)
	if r, found := a.runningSilent(err, f.where.stateDir); found {
		if f.replace || f.dryRun || !a.reached(ctx, c) {
			return a.upSilent(ctx, r, &f.where, f.replace, f.dryRun, start)
		}
		status, err = c.Status(ctx)
	}
	switch {
	case err == nil && !status.OnDemand && !f.replace:
		fmt.Fprintf(a.Out, "the daemon is up, pid %d (unchanged)\n", status.PID)
		return nil
	case err != nil && !errors.Is(err, client.ErrNoDaemon):
		return err
	case a.System.EUID() != 0:
		return failWith(exitDenied, "sudo netnice up", "only root can start the daemon")
	case f.dryRun:
		if err == nil {
			fmt.Fprintf(a.Out, "would replace the daemon, pid %d\n", status.PID)
		} else {
			fmt.Fprintln(a.Out, "would start the daemon")
		}
		return nil
	case err == nil && (!a.inService(status.PID) || !f.bySystemd()): // else systemd restarts the daemon
		if err := a.replace(ctx, status, f.where.stateDir); err != nil {
			return err
		}
	}
	return start(err == nil)
}

// upSilent is up where a daemon runs that does not listen on its socket.
func (a *App) upSilent(ctx context.Context, r RunningDaemon, where *daemonFlags, replace, dryRun bool, start func(again bool) error) error {
	switch {
	case a.System.EUID() != 0 || !replace:
		message, hint := a.unreachable(r)
		return failWith(exitNoDaemon, hint, "%s", message)
	case dryRun:
		fmt.Fprintf(a.Out, "would replace the daemon, pid %d\n", r.PID)
		return nil
	}
	if err := a.end(ctx, r, syscall.SIGKILL, where.stateDir); err != nil {
		return err
	}
	return start(true)
}

// startService makes systemd start the daemon, or restart it.
func (a *App) startService(ctx context.Context, c *client.Client, again bool) error {
	const hint = "systemctl status netnice\njournalctl -u netnice\nnetnice up --detach  starts the daemon without systemd"
	if err := a.System.StartService(ctx, again); err != nil {
		return failWith(exitFailed, hint, "the daemon did not start: %v", err)
	}
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "the daemon is up, pid %d, as %s (journalctl -u netnice)\n", status.PID, serviceName)
	return nil
}

// startUp starts a daemon that stays.
func (a *App) startUp(ctx context.Context, c *client.Client, where *daemonFlags) error {
	if err := a.start(ctx, c, where.args()...); err != nil {
		return err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "the daemon is up, pid %d, log %s\n", status.PID, a.LogPath)
	return nil
}

// replace kills a daemon. A daemon that was started on demand would lift its limits after SIGTERM; a killed one leaves
// them in force, and the next daemon takes them over. replace does not trust the process id that the daemon tells: the
// process must hold the daemon's lock.
func (a *App) replace(ctx context.Context, status *api.Status, stateDir string) error {
	r, found := a.running(stateDir)
	switch {
	case found && r.PID == status.PID:
		return a.end(ctx, r, syscall.SIGKILL, stateDir)
	case !found && !a.System.Alive(status.PID):
		return nil // the daemon has ended meanwhile
	}
	return failWith(exitFailed, fmt.Sprintf("look what that process is: ps -fp %[1]d; if it is the daemon: sudo kill -KILL %[1]d; sudo netnice up", status.PID),
		"the daemon says that it is process %d, which is not seen to hold the daemon's lock, and so is not killed", status.PID)
}

// gone waits until a daemon has ended. It does not call the daemon's socket: if systemd has opened the socket, a call
// would start the next daemon.
func (a *App) gone(ctx context.Context, pid int) error {
	for {
		if !a.System.Alive(pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return failWith(exitFailed, fmt.Sprintf("kill %d", pid), "the daemon (pid %d) does not end", pid)
		case <-time.After(pollInterval):
		}
	}
}
