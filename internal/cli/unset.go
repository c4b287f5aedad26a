package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

func (a *App) unset() *cobra.Command {
	var subject subjectFlags
	var asJSON, dryRun, all bool
	cmd := &cobra.Command{
		Use:   "unset SUBJECT | --all",
		Short: "Lift the limits of a subject, or all",
		Long: `Take back what you have set on a subject. Administrators (root, members of the group netnice)
take back everybody's; a user only their own.
A program's name or a container's pattern means those with limits.

With --all take back what was set by commands on whatever subject: administrators what anybody has
set, a user their own. Limits of rules and of network devices stay, and so do shares of the processors;
the command says on how many subjects, and which command helps. netnice down lifts everything.

` + subjectHelp,
		Example: "  sudo netnice unset --user bob\n  netnice unset 4711\n  netnice unset --all --dry-run",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := subject.named(args)
			switch {
			case err != nil:
				return err
			case all && (len(named) > 0 || subject.to.given()):
				return fail("netnice unset --all, or netnice unset SUBJECT", "--all and a subject at once")
			case all:
				return a.liftAll(cmd.Context(), dryRun, asJSON)
			case len(named) == 1 && isPattern(named[0]) && !subject.to.given():
				return a.liftLike(cmd.Context(), named[0], dryRun, asJSON)
			}
			s, err := subject.selection(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			return a.liftSelection(cmd.Context(), s, dryRun, asJSON)
		},
	}
	subject.add(a, cmd)
	cmd.Flags().BoolVar(&all, "all", false, "lift all limits that commands have set: your own; administrators everybody's")
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// lift lifts the caller's limits on a subject. It starts a daemon only where one is needed.
func (a *App) lift(ctx context.Context, s api.Subject, dryRun, asJSON bool) error {
	response, err := a.liftOne(ctx, s, dryRun)
	switch {
	case err != nil || response == nil:
		return err
	case asJSON:
		return writeJSON(a.Out, response)
	}
	a.lifted(ctx, response, s, dryRun)
	return nil
}

// liftOne is lift without any output. The answer is nil for a dry run without a daemon.
func (a *App) liftOne(ctx context.Context, s api.Subject, dryRun bool) (*api.SetResponse, error) {
	var response *api.SetResponse
	call := func(ctx context.Context, c *client.Client) error {
		answer, err := c.Unset(ctx, s, dryRun)
		if err == nil {
			response = answer
		}
		return err
	}
	err := a.callLift(ctx, call, s, dryRun)
	if isCode(err, api.CodeNoLimit) {
		return &api.SetResponse{Version: api.Version}, nil
	}
	return response, err
}

// lifted prints the result of lift.
func (a *App) lifted(ctx context.Context, response *api.SetResponse, s api.Subject, dryRun bool) {
	name := printable(s.String())
	switch {
	case response.Node != nil && len(response.Node.Limits) > 0:
		a.changed(response, s, dryRun) // another owner's limits stay
		return
	case !response.Changed:
		fmt.Fprintf(a.Out, "%s: no limit (unchanged)\n", name)
		for _, other := range a.narrower(ctx, s) {
			fmt.Fprintf(a.Out, "  there is: %s\n", printable(other.String()))
		}
	case dryRun:
		fmt.Fprintf(a.Out, "%s: would be lifted\n", name)
	default:
		fmt.Fprintf(a.Out, "%s: lifted\n", name)
	}
	a.warn(response.Warnings)
}

// narrower lists the limited destinations that begin as s does. For to:any this may be to:any,!10.0.0.0/8, which is
// another limit, and possibly the intended one.
func (a *App) narrower(ctx context.Context, s api.Subject) []api.Subject {
	var others []api.Subject
	if s.Kind != api.KindTo {
		return nil
	}
	where, whose, _ := strings.Cut(s.ID, "@")
	_ = a.read(ctx, func(ctx context.Context, c *client.Client) error {
		list, err := c.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range list.Nodes {
			rest, same := strings.CutPrefix(n.Subject.ID, where)
			if n.Subject.Kind == api.KindTo && len(n.Limits) > 0 && same && strings.HasSuffix(rest, whose) && strings.IndexAny(rest, ",/@:") == 0 {
				others = append(others, n.Subject)
			}
		}
		return nil
	})
	return others
}

// callLift runs the call. It starts a daemon only if limits may be in force without one.
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
