package cli

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/doctor"
)

func (a *App) doctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine offers, what is missing, and what to do",
		Long:  "Check what netnice needs of this machine. Exit code 1 if something is missing\nwithout which it cannot work.",
		Args:  between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := a.Parts.Doctor(cmd.Context())
			report.Checks = append(report.Checks, a.systemChecks(cmd.Context())...)
			report.Checks = append(report.Checks, a.daemonChecks(cmd.Context())...)
			if asJSON {
				if err := writeJSON(a.Out, report); err != nil {
					return err
				}
			} else if err := doctor.Render(a.Out, report, doctor.Look{Width: a.width(), State: a.paintState}); err != nil {
				return err
			}
			return verdict(&report)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// paintState colours the word for a check's state.
func (a *App) paintState(state, padded string) string {
	colours := map[string]string{doctor.OK: green, doctor.Degraded: yellow, doctor.Missing: red}
	return a.paint(colours[state], padded)
}

// daemonChecks returns the part of a report on a daemon that runs.
func (a *App) daemonChecks(ctx context.Context) []api.Check {
	c := client.New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	status, err := c.Status(ctx)
	if err != nil {
		return nil // without a daemon the report has no such part
	}
	return doctor.Daemon(cmp.Or(a.proc, "/proc"), status.PID)
}

// verdict returns an error that names the missing features, nil if none is missing. It has no remedy, because the
// report has one for each.
func verdict(r *api.Report) error {
	var missing []string
	for _, c := range r.Checks {
		if c.State == doctor.Missing {
			missing = append(missing, c.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &failure{message: "missing: " + strings.Join(missing, ", "), code: exitFailed}
}
