package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) rules() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Limits that apply themselves, from files",
		Long: `Rules limit programs without being asked: whatever matches a rule, now or later,
by whomever it is started. The administrator's are in /etc/netnice/netnice.toml and
/etc/netnice/conf.d/*.toml, a user's own in ~/.config/netnice/netnice.toml:

  [[rule]]
  name = "scp"
  program = "scp"
  up = "1MB/s"

netnice name:scp 1MB/s --always adds one for a program (root's in conf.d).
netnice.toml(5) tells what a rule may say. A daemon that stays (netnice up) follows
them, and reads a file that has changed within two seconds.`,
		Example: "  netnice rules check\n  sudo netnice rules reload\n  netnice rules test 4711",
		Args:    subcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.rulesCheck(), a.rulesList(), a.rulesTest(), a.rulesReload())
	return cmd
}

func (a *App) rulesList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the rules in force, and what is wrong in newer files",
		Long: `List the administrator's rules and your own (root: everybody's) in the order in
which they are looked at.

  ON        on how many processes, with their children, it stands now; of one
            that adapts, how many hosts are followed
  STATE     "also": holds besides the first that matches; "not now": by the time
            of the day or the week

An administrator's rule that names other users, a cgroup, a unit or a container shows its
connections as "(hidden)".`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.showRules(cmd.Context(), asJSON, (*client.Client).Rules)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *App) rulesReload() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read the files again, now",
		Long: `Read the files of rules again: root everybody's, others their own. What runs obeys
when the command returns. A file that is wrong changes nothing, says why, and exit code
1 follows.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.showRules(cmd.Context(), asJSON, (*client.Client).ReloadRules)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// showRules prints the answer of a call. Problems in it mean exit code 1.
func (a *App) showRules(ctx context.Context, asJSON bool, call func(*client.Client, context.Context) (*api.RuleList, error)) error {
	var list *api.RuleList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = call(c, ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		if err := writeJSON(a.Out, list); err != nil {
			return err
		}
		if len(list.Problems) > 0 {
			return &failure{code: exitFailed}
		}
		return nil
	}
	width, _ := a.System.Terminal(a.Out)
	fmt.Fprint(a.Out, a.ruleTable(list.Rules, width))
	if !list.Followed {
		a.warn([]string{"this daemon was started on demand and follows no rules: sudo netnice up"})
	}
	if len(list.Problems) > 0 {
		fmt.Fprintln(a.Err, "netnice: files with problems are not in force; what they said before is")
		return a.problems(list.Problems)
	}
	return nil
}

func (a *App) ruleTable(list []api.Rule, width int) string {
	if len(list) == 0 {
		return "no rules\n"
	}
	t := table{columns: []column{
		{title: "RULE", elastic: true},
		{title: "OF", drop: 1},
		{title: "MATCHES", elastic: true},
		{title: "LIMIT"},
		{title: "EACH/ALL", drop: 3},
		{title: "ON", right: true},
		{title: "STATE", drop: 2},
		{title: "WHERE", drop: 4},
	}}
	for _, r := range list {
		state := "-"
		switch {
		case !r.Active:
			state = "not now"
		case r.Also:
			state = "also"
		}
		t.rows = append(t.rows, []string{
			printable(r.Name), printable(r.Owner), printable(strings.Join(r.Conditions, ", ")), a.ruleText(&r),
			printable(r.Share), fmt.Sprint(r.Nodes), state, printable(fmt.Sprintf("%s:%d", r.File, r.Line)),
		})
	}
	return t.render(width)
}

// ruleText prints the limits and properties that a rule sets.
func (a *App) ruleText(r *api.Rule) string {
	var parts []string
	if r.AdaptSharePPM != 0 {
		text := fmt.Sprintf("adapt %g%%", float64(r.AdaptSharePPM)/1e4)
		if most := r.UpBytesPerSec; most != nil && *most != 0 {
			text += ", at most " + units.FormatRate(*most, a.units)
		}
		return text
	}
	for _, d := range []struct {
		rate *uint64
		name api.Direction
	}{{r.UpBytesPerSec, api.Up}, {r.DownBytesPerSec, api.Down}, {r.TotalBytesPerSec, api.Total}} {
		switch {
		case d.rate == nil:
		case *d.rate == 0:
			parts = append(parts, "no limit "+string(d.name))
		default:
			parts = append(parts, units.FormatRate(*d.rate, a.units)+" "+string(d.name))
		}
	}
	if r.MinBytesPerSec != 0 {
		parts = append(parts, a.leastText(r.MinBytesPerSec, api.Up))
	}
	if r.MinDownBytesPerSec != 0 {
		parts = append(parts, a.leastText(r.MinDownBytesPerSec, api.Down))
	}
	if r.Weight != 0 {
		parts = append(parts, fmt.Sprintf("weight %d", r.Weight))
	}
	return strings.Join(parts, ", ")
}

func (a *App) rulesTest() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test PID",
		Short: "Say which rules match a process, and why the others do not",
		Args:  between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := a.onePID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := a.present(pidSubject(pid)); err != nil {
				return err
			}
			var answer *api.RuleTest
			err = a.read(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				answer, err = c.TestRules(ctx, pid)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.Out, answer)
			}
			fmt.Fprint(a.Out, a.verdicts(answer))
			return nil
		},
	}
	cmd.ValidArgsFunction = a.completePID(false)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *App) verdicts(t *api.RuleTest) string {
	var b strings.Builder
	line := func(key, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-8s %s\n", key, printable(text))
		}
	}
	fmt.Fprintf(&b, "pid:%d\n", t.PID)
	line("program", t.Program)
	line("name", t.Name)
	line("user", t.User)
	line("command", t.Command)
	line("cgroup", t.Cgroup)
	line("container", t.Container)
	line("parent", t.Parent)
	if len(t.Rules) == 0 {
		b.WriteString("no rules\n")
	}
	for _, r := range t.Rules {
		verdict := "does not match: " + r.Differs
		switch {
		case r.Holds:
			verdict = "holds: " + a.ruleText(&r.Rule)
			if len(r.Connections) > 0 {
				verdict += ", for what goes " + strings.Join(r.Connections, ", ")
			}
		case r.Matches:
			verdict = "matches, but a rule before it holds"
		}
		fmt.Fprintf(&b, "%s (%s:%d, of %s) %s\n", printable(r.Name), printable(r.File), r.Line, printable(r.Owner), printable(verdict))
	}
	return b.String()
}
