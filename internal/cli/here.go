package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

// here is netnice itself: `netnice`, `netnice PID`, `netnice PID RATE`.
func (a *App) here() *cobra.Command {
	var asJSON, dryRun bool
	cmd := &cobra.Command{
		Use:   "netnice [PID [RATE]]",
		Short: "nice for the network: limit the bandwidth of processes, users, cgroups",
		Long: `netnice limits the bandwidth of processes, users, cgroups and the host.

  netnice                the limits of this shell
  netnice PID            the limits of a process: the lowest up, down and of both together, then each subject's
  netnice PID RATE       limit a process and its children, in + out together
  netnice PID 0          lift that, and say what stays (netnice unset --pid PID lifts all)
  netnice run --up 10MB/s -- CMD ARGS
                         run a command under a limit

` + rateHelp,
		Example: "  netnice 4711 10mbit\n  netnice run --up 500kB/s -- rsync -a ~/photos backup:",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && strings.Trim(args[0], "-0123456789") != "" {
				return unknownCommand(cmd, args[0])
			}
			return arguments(cmd, args, 0, 2)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args) == 0 {
				return a.showProcess(ctx, a.System.ParentPID(), asJSON)
			}
			pid, err := parsePID(args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.showProcess(ctx, pid, asJSON)
			}
			rate, err := units.ParseRate(args[1])
			if err != nil {
				return err
			}
			a.warn(rateNotes(args[1], true))
			if rate == 0 {
				return a.liftTotal(ctx, pidSubject(pid), dryRun, asJSON)
			}
			return a.apply(ctx, api.SetRequest{
				Subject: pidSubject(pid), Wish: api.Wish{TotalBytesPerSec: &rate}, DryRun: dryRun,
			}, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// showProcess prints the limits that hold for a process: the lowest in each direction on the first line, then
// what stands on each node from the innermost out, where that is more.
func (a *App) showProcess(ctx context.Context, pid int, asJSON bool) error {
	subject := pidSubject(pid)
	name, err := a.present(subject)
	if err != nil {
		return err
	}
	list, err := a.nodesFor(ctx, subject)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(a.Out, list)
	}
	who := printable(subject.String())
	if name != "" {
		who = fmt.Sprintf("pid %d (%s)", pid, printable(name))
	}
	first := a.tightestText(list.Nodes, subject)
	fmt.Fprintf(a.Out, "%s: %s\n", who, first)
	if len(list.Nodes) == 1 && a.ownedNodeText(&list.Nodes[0]) == first {
		return nil // it says all
	}
	for i := range list.Nodes {
		n := &list.Nodes[i]
		fmt.Fprintf(a.Out, "  %s: %s\n", printable(n.Subject.String()), a.ownedNodeText(n))
	}
	return nil
}

// tightestText names the lowest limit of each direction, where it stands if not on the subject itself, and who
// has set it.
func (a *App) tightestText(nodes []api.Node, subject api.Subject) string {
	var parts []string
	for _, direction := range []api.Direction{api.Up, api.Down, api.Total} {
		node, limit := tightest(nodes, direction)
		if limit == nil {
			continue
		}
		text := a.rateText(*limit)
		if node.Subject != subject {
			text += " on " + printable(node.Subject.String())
		}
		parts = append(parts, text+" by "+setterText(*limit))
	}
	if len(parts) == 0 {
		return noLimitText
	}
	return strings.Join(parts, ", ")
}

// liftTotal lifts the caller's limit on both directions together, as `netnice PID 0` says, and nothing else; what
// stays is printed.
func (a *App) liftTotal(ctx context.Context, subject api.Subject, dryRun, asJSON bool) error {
	none := uint64(0)
	var response *api.SetResponse
	call := func(ctx context.Context, c *client.Client) error {
		answer, err := c.Set(ctx, api.SetRequest{Subject: subject, Wish: api.Wish{TotalBytesPerSec: &none}, DryRun: dryRun})
		if err == nil {
			response = answer
		}
		return err
	}
	switch err := a.callLift(ctx, call, subject, dryRun); {
	case err != nil || response == nil:
		return err
	case asJSON:
		return writeJSON(a.Out, response)
	}
	name := printable(subject.String())
	switch {
	case !response.Changed:
		fmt.Fprintf(a.Out, "%s: no limit of yours on in and out together (unchanged)\n", name)
	case dryRun:
		fmt.Fprintf(a.Out, "%s: would be lifted: the limit on in and out together\n", name)
	default:
		fmt.Fprintf(a.Out, "%s: lifted: the limit on in and out together\n", name)
	}
	if err := a.printStays(ctx, subject, response); err != nil {
		return err
	}
	a.warn(response.Warnings)
	return nil
}

// printStays prints what holds for a subject after a limit was lifted, or would hold.
func (a *App) printStays(ctx context.Context, subject api.Subject, lifted *api.SetResponse) error {
	list, err := a.nodesFor(ctx, subject)
	if errors.Is(err, client.ErrNoDaemon) {
		return nil // it has left with its last limit
	}
	if err != nil {
		return err
	}
	for i := range list.Nodes {
		n := &list.Nodes[i]
		switch {
		case lifted.Node != nil && n.ID == lifted.Node.ID:
			n = lifted.Node
		case n.Subject == subject && lifted.Changed && lifted.Node == nil:
			continue // nothing is left of its own
		}
		if text := a.ownedNodeText(n); text != noLimitText {
			fmt.Fprintf(a.Out, "  stays: %s: %s\n", printable(n.Subject.String()), text)
		}
	}
	return nil
}

// nodesFor asks what holds for a subject; nothing is an empty list, which names the subject, too.
func (a *App) nodesFor(ctx context.Context, s api.Subject) (*api.NodeList, error) {
	var list *api.NodeList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) error {
		var err error
		list, err = c.NodesFor(ctx, s)
		return err
	})
	there := s.Kind == api.KindPID || s.Kind == api.KindHost // a pid was, a moment ago
	if isCode(err, api.CodeNoLimit) || there && isCode(err, api.CodeNotFound) {
		list, err = &api.NodeList{Version: api.Version, Time: time.Now(), Nodes: []api.Node{}}, nil
	}
	if list != nil {
		list.Subject = &s
	}
	return list, err
}

// unknownCommand words a first argument that is neither a pid nor a command.
func unknownCommand(cmd *cobra.Command, word string) error {
	hint := "netnice --help"
	if similar := cmd.SuggestionsFor(word); len(similar) > 0 {
		hint = "did you mean netnice " + similar[0] + "?"
	}
	return fail(hint, "%q is neither a command nor a process id", word)
}

// arguments checks how many there are.
func arguments(cmd *cobra.Command, args []string, least, most int) error {
	help := cmd.CommandPath() + " --help"
	switch {
	case len(args) < least:
		return fail(help, "%s needs more arguments: %s", cmd.CommandPath(), cmd.UseLine())
	case len(args) > most:
		return fail(help, "%q is one argument too many", args[most])
	}
	return nil
}

// between is arguments as cobra wants it.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return arguments(cmd, args, least, most) }
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON")
}

func dryRunFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "dry-run", false, "say what would change, and change nothing")
}
