package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/doctor"
)

func (a *App) systemSettings() *cobra.Command {
	var asJSON, dryRun bool
	var meter string
	cmd := &cobra.Command{
		Use:   "system [--input-meter=on|off]",
		Short: "Set what holds for the whole machine, or show it",
		Long: `With --input-meter=off what is received counts in no limit's total, from now on and until it is turned on
again or netnice down: --total limits what is sent alone, as if each had been set with --input-meter=false. A limit
that was set with --input-meter counts it no more, either; limits on what is received (--down) hold as ever.

It stays as it is when a daemon leaves or is replaced, and over a reboot. Administrators only; anybody may look.`,
		Example: "  netnice system --input-meter=off\n  netnice system --input-meter=on\n  netnice system --json",
		Args:    between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("input-meter") {
				if dryRun {
					return fail("netnice system --input-meter=off --dry-run", "nothing is to be set for the whole machine")
				}
				return a.showSystem(cmd.Context(), asJSON)
			}
			on, err := parseSwitch("--input-meter", meter)
			if err != nil {
				return err
			}
			return a.setSystem(cmd.Context(), api.SystemRequest{InputMeter: &on, DryRun: dryRun}, asJSON)
		},
	}
	cmd.Flags().StringVar(&meter, "input-meter", "", "`on|off`: count what is received in the totals of limits (without it: show whether)")
	_ = cmd.RegisterFlagCompletionFunc("input-meter", cobra.FixedCompletions([]string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp))
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// parseSwitch reads on or off, and the words that flags of limits take for these.
func parseSwitch(flag, text string) (on bool, err error) {
	switch text {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return false, fail(flag+"=on, or "+flag+"=off", "%s: %q is neither on nor off", flag, text)
}

func (a *App) setSystem(ctx context.Context, request api.SystemRequest, asJSON bool) error {
	var answer *api.System
	call := func(ctx context.Context, c *client.Client) error {
		got, err := c.SetSystem(ctx, request)
		if err == nil {
			answer = got
		}
		return err
	}
	var err error
	if request.DryRun {
		err = a.rehearse(ctx, call, api.Subject{Kind: api.KindHost})
	} else {
		err = a.write(ctx, call)
	}
	switch {
	case err != nil:
		return err
	case answer == nil:
		return nil // a dry run without a daemon
	}
	a.warn(answer.Warnings)
	if asJSON {
		return writeJSON(a.Out, answer)
	}
	would := ""
	if request.DryRun {
		would = "would be: "
	}
	fmt.Fprintf(a.Out, "%sinput meter %s\n", would, meterText(answer.InputMeter))
	return nil
}

// showSystem prints the settings of the whole machine.
func (a *App) showSystem(ctx context.Context, asJSON bool) error {
	var answer *api.System
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		answer, err = c.System(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.Out, answer)
	}
	fmt.Fprintf(a.Out, "input meter %s\n", meterText(answer.InputMeter))
	return nil
}

func meterText(on bool) string {
	if on {
		return "on: what is received counts in the totals of limits, unless one says otherwise"
	}
	return "off: what is received counts in no limit's total"
}

// systemTimeout is how long a report of the machine waits for a daemon.
const systemTimeout = 2 * time.Second

// systemChecks returns the part of a report on the settings of a daemon that runs, if these are not the usual ones.
func (a *App) systemChecks(ctx context.Context) []api.Check {
	c := client.New(a.socket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, systemTimeout)
	defer cancel()
	now, err := c.System(ctx)
	if err != nil || now.InputMeter { // without a daemon there are no settings
		return nil
	}
	return []api.Check{{
		Name: "input meter", State: doctor.Degraded, Found: "off for the whole machine",
		Means: "what is received counts in no limit's total", Remedy: "sudo netnice system --input-meter=on",
	}}
}
