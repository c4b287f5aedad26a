package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/netnice/netnice/api"
)

// Render writes a report for people: a line a check, then what follows from it
// and what to do (said once), and a last line that sums up.
func Render(w io.Writer, report api.Report) error {
	wide := 0
	for _, c := range report.Checks {
		wide = max(wide, len(c.Name))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Linux %s\n", report.Kernel)
	counts, unseen, said := map[string]int{}, 0, map[string]bool{}
	for _, c := range report.Checks {
		counts[c.State]++
		if c.Found == notLooked {
			unseen++
		}
		fmt.Fprintf(&out, "%-8s  %-*s  %s\n", c.State, wide, c.Name, c.Found)
		indent := strings.Repeat(" ", 8+2+wide+2)
		for line := range strings.Lines(c.Means) {
			out.WriteString(indent + strings.TrimRight(line, "\n") + "\n")
		}
		if said[c.Remedy] {
			continue
		}
		said[c.Remedy] = true
		mark := "-> "
		for line := range strings.Lines(c.Remedy) {
			out.WriteString(indent + mark + strings.TrimRight(line, "\n") + "\n")
			mark = "   "
		}
	}
	switch {
	case counts[Missing] > 0:
		fmt.Fprintf(&out, "netnice does not work here yet: %d missing.\n", counts[Missing])
	case unseen > 0:
		fmt.Fprintf(&out, "Whether netnice works here only root can find out: %d of %d checks could not be made.\n", unseen, len(report.Checks))
	case counts[Degraded] > 0:
		fmt.Fprintf(&out, "netnice works here, with %d restriction%s.\n", counts[Degraded], plural(counts[Degraded]))
	default:
		out.WriteString("netnice works here.\n")
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
