package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

func (a *App) unset() *cobra.Command {
	var subject subjectFlags
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:     "unset SUBJECT",
		Short:   "Lift the limits of a subject",
		Long:    "Take back what you have set on a subject. Root takes back everybody's; a user only their own.\n\n" + subjectHelp,
		Example: "  sudo netnice unset --user bob",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := subject.subject(args)
			if err != nil {
				return err
			}
			return a.lift(cmd.Context(), s, dryRun, asJSON)
		},
	}
	subject.add(a, cmd)
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// lift takes the caller's wishes for a subject back. A daemon is started for it
// only where it is needed.
func (a *App) lift(ctx context.Context, s api.Subject, dryRun, asJSON bool) error {
	var response *api.SetResponse
	call := func(ctx context.Context, c *client.Client) error {
		answer, err := c.Unset(ctx, s, dryRun)
		if err == nil {
			response = answer
		}
		return err
	}
	switch err := a.callLift(ctx, call, s, dryRun); {
	case isCode(err, api.CodeNoLimit):
		response = &api.SetResponse{Version: api.Version}
	case err != nil || response == nil:
		return err
	}
	if asJSON {
		return writeJSON(a.Out, response)
	}
	name := printable(s.String())
	switch {
	case response.Node != nil && len(response.Node.Limits) > 0:
		a.changed(response, s, dryRun) // another owner's limits stay
		return nil
	case !response.Changed:
		fmt.Fprintf(a.Out, "%s: no limit (unchanged)\n", name)
	case dryRun:
		fmt.Fprintf(a.Out, "%s: would be lifted\n", name)
	default:
		fmt.Fprintf(a.Out, "%s: lifted\n", name)
	}
	a.warn(response.Warnings)
	return nil
}

// callLift runs the call and starts a daemon for it only where limits may stand
// without one.
func (a *App) callLift(ctx context.Context, call func(context.Context, *client.Client) error, s api.Subject, dryRun bool) error {
	pins, err := a.System.Pins(a.PinDir)
	switch {
	case err == nil && !pins:
		return a.read(ctx, call)
	case dryRun:
		return a.rehearse(ctx, call, s)
	}
	return a.write(ctx, call)
}
