package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/wrap"
)

func (a *App) status() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon and what is attached in the kernel",
		Args:  between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var status *api.Status
			err := a.read(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				status, err = c.Status(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.Out, status)
			}
			fmt.Fprint(a.Out, a.statusText(status, a.width()))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// statusText returns the text that status prints, in lines of a width.
func (a *App) statusText(s *api.Status, width int) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		b.WriteString(wrap.Hanging(fmt.Sprintf("%-9s ", key), fmt.Sprintf(format, args...), width))
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
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
		if n := s.Counters[name]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", printable(name), n))
		}
	}
	if len(faults) == 0 {
		line("faults", "none")
	} else {
		line(a.paint(yellow, fmt.Sprintf("%-9s", "faults")), "%s", strings.Join(faults, ", "))
	}
	line("unknown", "%s", a.unknownText(s.Unknown))
	for _, p := range s.Problems {
		line(a.paint(red, fmt.Sprintf("%-9s", "problem")), "%s", printable(p.Message))
		for hint := range strings.Lines(p.Hint) {
			b.WriteString(wrap.Hanging(strings.Repeat(" ", 10)+"-> ", printable(strings.TrimRight(hint, "\n")), width))
		}
	}
	if len(s.Programs) > 0 {
		b.WriteString("\n" + programTable(s.Programs, width))
	}
	return b.String()
}

// programTable lists programs of the kernel with their purposes, and breaks lines to the width.
func programTable(programs []api.Program, width int) string {
	t := table{columns: []column{{title: "PROGRAM"}, {title: "STATE"}}}
	for _, p := range programs {
		state := "detached"
		if p.Attached {
			state = "attached"
		}
		t.rows = append(t.rows, []string{printable(p.Name), state})
	}
	lines := strings.Split(strings.TrimSuffix(t.render(0), "\n"), "\n")
	if !slices.ContainsFunc(programs, func(p api.Program) bool { return p.For != "" }) {
		return strings.Join(lines, "\n") + "\n"
	}
	wide := 0
	for _, line := range lines {
		wide = max(wide, ansi.StringWidth(line))
	}
	var b strings.Builder
	for i, line := range lines {
		what := "FOR"
		if i > 0 {
			what = printable(programs[i-1].For)
		}
		if what == "" {
			b.WriteString(line + "\n")
			continue
		}
		b.WriteString(wrap.Hanging(pad(line, wide, false)+"  ", what, width))
	}
	return b.String()
}
