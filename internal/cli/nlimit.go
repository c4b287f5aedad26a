package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

// nlimit is ulimit for the network: a limit on sending in bare bytes per second.
func (a *App) nlimit() *cobra.Command {
	var pid, user string
	var asJSON, dryRun bool
	limit := optional[uint64]{parse: units.ParseBareRate, kind: kindBareRate}
	cmd := &cobra.Command{
		Use:   "nlimit [-p PID | -u USER] [-o LIMIT]",
		Short: "Show or set a limit on sending in bytes per second, as ulimit does",
		Long: `Set the limit on what a process (by default the calling shell) or a user sends,
in bytes per second; 0 or unlimited lift it. Without -o, print the limit that
holds. The same when netnice is called by the name nlimit.`,
		Example: "  netnice nlimit -o 100000\n  nlimit -p 4711",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			subject, err := a.nlimitSubject(pid, user)
			if err != nil {
				return err
			}
			if limit.value != nil {
				return a.apply(cmd.Context(), api.SetRequest{
					Subject: subject, Wish: api.Wish{UpBytesPerSec: limit.value}, DryRun: dryRun,
				}, asJSON)
			}
			if _, err := a.present(subject); err != nil {
				return err
			}
			list, err := a.nodesFor(cmd.Context(), subject)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.Out, list)
			}
			if _, l := tightest(list.Nodes, api.Up, api.Total); l != nil {
				fmt.Fprintln(a.Out, l.BytesPerSec)
			} else {
				fmt.Fprintln(a.Out, "unlimited")
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&pid, "pid", "p", "", "a `process` and its children; the calling shell by default")
	cmd.Flags().StringVarP(&user, "user", "u", "", "a `user`, by name or id")
	_ = cmd.RegisterFlagCompletionFunc("pid", a.completeValue(api.KindPID))
	_ = cmd.RegisterFlagCompletionFunc("user", a.completeValue(api.KindUser))
	cmd.Flags().VarP(&limit, "output", "o", "limit on sending, in bytes per second")
	completeRates(cmd, "output")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

func (a *App) nlimitSubject(pid, user string) (api.Subject, error) {
	switch {
	case pid != "" && user != "":
		return api.Subject{}, fail("give one of them", "-p and -u do not go together")
	case user != "":
		return checkSubject(api.Subject{Kind: api.KindUser, ID: user})
	case pid != "":
		return checkSubject(api.Subject{Kind: api.KindPID, ID: pid})
	}
	return pidSubject(a.System.ParentPID()), nil
}
