package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// here is the command netnice itself: `netnice`, `netnice PID`, `netnice PID RATE`.
func (a *App) here() *cobra.Command {
	var asJSON, dryRun, always bool
	var span forFlag
	cmd := &cobra.Command{
		Use:   "netnice [PID|SUBJECT [RATE]]",
		Short: "nice for the network: limit the bandwidth of processes, users, cgroups",
		Long: `netnice limits the bandwidth of processes, users, cgroups and the host.

  netnice                the limits of this shell
  netnice PID            the limits of a process: the lowest up, down and of both together (pending: not in force yet), then each subject's
  netnice PID RATE       limit a process and its children, in + out together
  netnice PID 0          lift that, and say what stays (netnice unset --pid PID lifts all)
  netnice PID RATE --for 10m
                         for so long, then as before
  netnice name:curl RATE the same for each process that runs curl now
  netnice name:curl RATE --always
                         and for each to come: adds a rule
  netnice run --up 10MB/s -- CMD ARGS
                         run a command under a limit

Instead of PID a subject can be written as ls prints it: user:bob, unit:nginx, host.
For processes of a name to come, too: --always; other rules: netnice rules --help.

` + rateHelp,
		Example: "  netnice 4711 10mbit\n  netnice name:curl 1MB/s\n  netnice run --up 500kB/s -- rsync -a ~/photos backup:",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !isSubject(args[0]) {
				return unknownCommand(cmd, args)
			}
			return arguments(cmd, args, 0, 2)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			switch {
			case span.value != nil && (always || len(args) < 2):
				return fail("netnice 4711 10mbit --for 10m", "--for goes with a rate, and not with --always: a rule has no end")
			case always:
				return a.alwaysTotal(ctx, args, dryRun, asJSON)
			case len(args) == 0:
				return a.showLimit(ctx, pidSubject(a.System.ParentPID()), asJSON)
			}
			s, err := new(subjectFlags).selection(ctx, a, args[:1])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.showLimits(ctx, s, asJSON)
			}
			rate, err := units.ParseRate(args[1])
			if err != nil {
				return err
			}
			a.warn(rateNotes(args[1], true))
			switch {
			case rate == 0 && s.isPattern():
				return a.liftLike(ctx, s.pattern, dryRun, asJSON)
			case rate == 0:
				return a.liftTotal(ctx, s.subjects[0], dryRun, asJSON)
			}
			return a.applyTo(ctx, s, api.SetRequest{Wish: api.Wish{TotalBytesPerSec: &rate}, ForNS: span.ns(), DryRun: dryRun}, asJSON)
		},
	}
	cmd.ValidArgsFunction = a.completeHere
	span.add(cmd)
	alwaysFlag(cmd, &always)
	jsonFlag(cmd, &asJSON)
	dryRunFlag(cmd, &dryRun)
	return cmd
}

// isSubject reports whether a word is a subject, or is meant to be one: a number, or a word with a colon.
func isSubject(word string) bool {
	_, err := parseSubject(word)
	return err == nil || strings.Contains(word, ":")
}

// showLimits prints the limits that hold for each subject of a selection.
func (a *App) showLimits(ctx context.Context, s *selection, asJSON bool) error {
	if !s.isPattern() {
		return a.showLimit(ctx, s.subjects[0], asJSON)
	}
	if asJSON {
		list, err := a.nodesForEach(ctx, s)
		if err != nil {
			return err
		}
		return writeJSON(a.Out, list)
	}
	for _, subject := range slices.Concat(s.subjects, s.inner) {
		if err := a.showLimit(ctx, subject, false); err != nil && !a.hasGone(subject, err) {
			return err
		}
	}
	return nil
}

// showLimit prints the limits that hold for a subject: the lowest in each direction on the first line, then
// the limits of each node from the innermost out, where there are more.
func (a *App) showLimit(ctx context.Context, subject api.Subject, asJSON bool) error {
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
	if name != "" && subject.Kind == api.KindPID {
		who = fmt.Sprintf("pid %s (%s)", subject.ID, printable(name))
	}
	first := a.tightestText(list.Nodes, subject)
	fmt.Fprintf(a.Out, "%s: %s\n", who, first)
	if len(list.Nodes) == 1 && a.ownedNodeText(&list.Nodes[0]) == first {
		return nil // the first line has all
	}
	for i := range list.Nodes {
		n := &list.Nodes[i]
		fmt.Fprintf(a.Out, "  %s: %s\n", printable(n.Subject.String()), a.ownedNodeText(n))
	}
	return nil
}

// tightestText names the lowest limit of each direction and its owner, and its node if that is not the subject itself.
// It adds the lower limits that are set and not in force yet.
func (a *App) tightestText(nodes []api.Node, subject api.Subject) string {
	var inForce, pending []string
	text := func(node *api.Node, limit api.Limit) string {
		where := ""
		if node.Subject != subject {
			where = " on " + printable(node.Subject.String())
		}
		return a.rateText(limit) + where + " by " + setterText(limit)
	}
	for _, direction := range []api.Direction{api.Up, api.Down, api.Total} {
		node, limit := tightest(nodes, direction)
		if limit != nil {
			inForce = append(inForce, text(node, *limit))
		}
		if later, next := lowestOf(nodes, false, direction); next != nil && (limit == nil || next.BytesPerSec < limit.BytesPerSec) {
			then := *next
			then.Enforced = true // the text says once, before all of them, that they are pending
			pending = append(pending, text(later, then))
		}
	}
	switch {
	case len(inForce) == 0 && len(pending) == 0:
		return noLimitText
	case len(pending) == 0:
		return strings.Join(inForce, ", ")
	case len(inForce) == 0:
		return "no limit in force; pending: " + strings.Join(pending, ", ")
	}
	return strings.Join(inForce, ", ") + "; pending: " + strings.Join(pending, ", ")
}

// liftTotal lifts the caller's limit on both directions together, as `netnice PID 0` says, and nothing else. It prints
// the limits that stay.
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

// printStays prints the limits that hold for a subject after a limit was lifted, or that would hold after it.
func (a *App) printStays(ctx context.Context, subject api.Subject, lifted *api.SetResponse) error {
	list, err := a.nodesFor(ctx, subject)
	if errors.Is(err, client.ErrNoDaemon) {
		return nil // the daemon has left with its last limit
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
			continue // the subject has no limit of its own any more
		}
		if text := a.ownedNodeText(n); text != noLimitText {
			fmt.Fprintf(a.Out, "  stays: %s: %s\n", printable(n.Subject.String()), text)
		}
	}
	return nil
}

// nodesFor asks for the nodes that hold for a subject. If there are none, the list is empty and names the subject, too.
func (a *App) nodesFor(ctx context.Context, s api.Subject) (*api.NodeList, error) {
	var list *api.NodeList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.NodesFor(ctx, s)
		return err
	})
	there := s.Kind == api.KindPID || s.Kind == api.KindHost // the process existed a moment ago (present)
	if isCode(err, api.CodeNoLimit) || there && isCode(err, api.CodeNotFound) {
		list, err = &api.NodeList{Version: api.Version, Time: time.Now(), Nodes: []api.Node{}}, nil
	}
	if list != nil {
		list.Subject = &s
	}
	return list, err
}

// arguments checks the number of arguments.
func arguments(cmd *cobra.Command, args []string, least, most int) error {
	help := cmd.CommandPath() + " --help"
	switch {
	case len(args) < least:
		return fail(help, "%s needs more arguments: %s", cmd.CommandPath(), cmd.UseLine())
	case len(args) > most:
		return fail(cmp.Or(rateRemedy(cmd, args), help), "%q is one argument too many", args[most])
	}
	return nil
}

// rateRemedy returns the command that a subject and a rate in the words of a command were meant for, "" if they are
// none.
func rateRemedy(cmd *cobra.Command, args []string) string {
	if cmd.HasParent() && cmd.Name() != "set" || len(args) < 2 || !isSubject(args[0]) {
		return ""
	}
	rate := strings.Join(args[1:], "") // "10 MB/s" without quotes is two words
	if _, err := units.ParseRate(rate); err != nil {
		return ""
	}
	return "netnice " + shell.Word(args[0]) + " " + rate + ", or one way only: netnice set " + shell.Word(args[0]) + " --up " + rate
}

// between is arguments with the signature that cobra needs.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return arguments(cmd, args, least, most) }
}

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON")
}

func dryRunFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "dry-run", false, "say what would change, and change nothing")
}
