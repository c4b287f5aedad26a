package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/client"
)

func (a *App) down() *cobra.Command {
	var where daemonFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Lift every limit and end the daemon",
		Long: `Lift every limit, end the daemon and leave the machine as it was. Where a daemon
has died and left limits in the kernel, lift those; one that nobody finds on its
socket is ended by a signal. Devices that earlier daemons have left and nobody
uses are removed. Where nothing is, do nothing.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), downTimeout)
			defer cancel()
			c := client.New(a.socket)
			defer c.Close()
			err := a.downByDaemon(ctx, c, dryRun)
			if !errors.Is(err, client.ErrNoDaemon) {
				return err
			}
			if r, ok := a.running(where.stateDir); ok {
				return a.downSilent(ctx, c, r, &where, dryRun)
			}
			return a.downAlone(ctx, c, &where, dryRun)
		},
	}
	where.add(a, cmd)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// downByDaemon lets the daemon lift everything, and waits until it has ended.
func (a *App) downByDaemon(ctx context.Context, c *client.Client, dryRun bool) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if dryRun {
		list, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		for i := range list.Nodes {
			n := &list.Nodes[i]
			fmt.Fprintf(a.Out, "would lift %s: %s\n", printable(n.Subject.String()), a.nodeText(n))
		}
		powers, err := c.Powers(ctx)
		if err != nil {
			return err
		}
		for i := range powers.Powers {
			p := &powers.Powers[i]
			fmt.Fprintf(a.Out, "would lift the power of process %d (%s): %s\n", p.PID, printable(p.Name), a.powerText(p))
		}
		fmt.Fprintf(a.Out, "would end the daemon, pid %d\n", status.PID)
		return nil
	}
	if err := c.Down(ctx); err != nil {
		return err
	}
	if err := a.gone(ctx, status.PID); err != nil {
		return err
	}
	lifted := ""
	if status.Nodes > 0 {
		lifted = count(status.Nodes, "limited subject") + " lifted, "
	}
	fmt.Fprintf(a.Out, "down: %sthe daemon has ended\n", lifted)
	a.removeUnused(ctx)
	return nil
}

// downSilent lifts the limits of a daemon that runs and is not found on its socket. It waits a while for the daemon to
// make the socket again. After that it ends the daemon by a signal, and lifts the limits as those of a dead daemon.
func (a *App) downSilent(ctx context.Context, c *client.Client, r RunningDaemon, where *daemonFlags, dryRun bool) error {
	message, hint := a.unreachable(r)
	if a.System.EUID() != 0 || !a.listensHere(r) {
		return failWith(exitNoDaemon, hint, "%s", message)
	}
	if a.reached(ctx, c) {
		return a.downByDaemon(ctx, c, dryRun)
	}
	if dryRun {
		fmt.Fprintf(a.Out, "would end the daemon, pid %d, by a signal, and lift all limits\n", r.PID)
		return nil
	}
	if err := a.endSilent(ctx, r, where.stateDir); err != nil {
		return err
	}
	return a.downAlone(ctx, c, where, false)
}

// downAlone lifts the limits of a dead daemon. It starts a new daemon for that, which knows best what there is to lift,
// cgroups of --scope included. Where no daemon can start, downAlone removes the pins at least.
func (a *App) downAlone(ctx context.Context, c *client.Client, where *daemonFlags, dryRun bool) error {
	pins, err := a.System.Pins(a.PinDir)
	switch {
	case errors.Is(err, fs.ErrPermission), pins && a.System.EUID() != 0:
		return failWith(exitDenied, "sudo netnice down", "only root can lift what an earlier daemon left")
	case err != nil:
		return err
	case a.System.EUID() != 0:
		fmt.Fprintln(a.Out, "down already (unchanged)")
		return nil
	case dryRun:
		a.rehearseDown(ctx, pins)
		return nil
	}
	if pins {
		err := a.start(ctx, c, append(where.args(), "--on-demand")...)
		if err == nil {
			err = a.downByDaemon(ctx, c, false)
		}
		if err == nil {
			return nil
		}
		message, _, _ := explain(err)
		a.warn([]string{message + "; removing the pins without a daemon"})
	}
	// Also without pins: the state of an earlier daemon would bring limits back.
	if err := a.Parts.Down(ctx, DaemonOptions{PinDir: a.PinDir, StateDir: where.stateDir, CgroupRoot: where.cgroupRoot}); err != nil {
		return err
	}
	removed := a.removeUnused(ctx)
	switch {
	case pins:
		fmt.Fprintln(a.Out, "down: what an earlier daemon left is lifted")
	case !removed:
		fmt.Fprintln(a.Out, "down already (unchanged)")
	}
	return nil
}

// rehearseDown prints the changes that downAlone would make.
func (a *App) rehearseDown(ctx context.Context, pins bool) {
	if pins {
		fmt.Fprintf(a.Out, "would lift what an earlier daemon left in %s\n", a.PinDir)
	}
	left := a.unused(ctx, false)
	if len(left) > 0 {
		fmt.Fprintf(a.Out, "would remove %s\n", strings.Join(left, ", "))
	}
	if !pins && len(left) == 0 {
		fmt.Fprintln(a.Out, "down already (unchanged)")
	}
}
