package cli

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// guard is the command of a process that the daemon starts for itself. People have no use for it, so --help does not
// show it.
func (a *App) guard() *cobra.Command {
	var where daemonFlags
	cmd := &cobra.Command{
		Use:    "guard",
		Short:  "Outlive the daemon, which starts it, and see to what that leaves",
		Hidden: true,
		Args:   between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A signal to all processes of the daemon's unit would end the guard too early.
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			return a.Parts.Guard(cmd.Context(), DaemonOptions{PinDir: a.PinDir, CgroupRoot: where.cgroupRoot})
		},
	}
	where.add(a, cmd)
	return cmd
}
