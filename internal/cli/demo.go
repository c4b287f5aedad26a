package cli

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func (a *App) demo() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show limits at work on real traffic, in 45 seconds",
		Long: `Make network namespaces, send through them, and show live how limits act on what
is sent. Needs root, touches no real network and leaves nothing behind.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.System.EUID() != 0 {
				return failWith(exitDenied, "sudo netnice demo", "only root can make network namespaces")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.Parts.Demo(ctx, DemoOptions{JSON: asJSON, Out: a.Out})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
