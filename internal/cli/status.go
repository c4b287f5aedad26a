package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

func (a *App) status() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon and what is attached in the kernel",
		Args:  between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var status *api.Status
			err := a.read(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				var err error
				status, err = c.Status(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.Out, status)
			}
			fmt.Fprint(a.Out, a.statusText(status))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *App) statusText(s *api.Status) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", key, fmt.Sprintf(format, args...))
	}
	mode := ""
	if s.OnDemand {
		mode = ", on demand: it leaves with the last limit"
	}
	line("daemon", "running, pid %d, since %s%s", s.PID, s.Since.Local().Format(time.DateTime), mode)
	line("release", "%s", printable(s.Release))
	line("kernel", "%s", printable(s.Kernel))
	line("limits", "on %s", count(s.Nodes, "subject"))
	if s.Powers > 0 {
		line("powers", "%s with a share of the processors (netnice power)", count(s.Powers, "process"))
	}
	if s.InputMeterOff {
		line("meter", "%s (netnice system)", meterText(false))
	}
	t := table{columns: []column{{title: "PROGRAM"}, {title: "STATE"}, {title: "FOR"}}}
	told := slices.ContainsFunc(s.Programs, func(p api.Program) bool { return p.For != "" })
	if !told {
		t.columns = t.columns[:2]
	}
	for _, p := range s.Programs {
		state := "detached"
		if p.Attached {
			state = "attached"
		}
		t.rows = append(t.rows, []string{printable(p.Name), state, printable(p.For)})
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", printable(name), n))
		}
	}
	if len(faults) == 0 {
		faults = []string{"none"}
	}
	line("faults", "%s", strings.Join(faults, ", "))
	line("unknown", "%s", a.unknownText(s.Unknown))
	for _, p := range s.Problems {
		line("problem", "%s", printable(p.Message))
		for hint := range strings.Lines(p.Hint) {
			line("", "-> %s", printable(strings.TrimRight(hint, "\n")))
		}
	}
	if len(t.rows) > 0 {
		b.WriteString("\n" + t.render(0))
	}
	return b.String()
}
