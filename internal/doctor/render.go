package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/wrap"
)

// Look is how a report is written. The zero value breaks no line and has no colours.
type Look struct {
	Width int // of a line, in cells of a terminal; 0 = any
	// State colours the word for a check's state, padded as it is printed; nil leaves it.
	State func(state, padded string) string
}

// Render writes a report for people: a line a check, then what follows from it
// and what to do (said once), and a last line that sums up.
func Render(w io.Writer, report api.Report, look Look) error {
	if look.State == nil {
		look.State = func(_, padded string) string { return padded }
	}
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
		state := look.State(c.State, fmt.Sprintf("%-8s", c.State))
		out.WriteString(wrap.Hanging(fmt.Sprintf("%s  %-*s  ", state, wide, c.Name), c.Found, look.Width))
		indent := strings.Repeat(" ", 8+2+wide+2)
		for line := range strings.Lines(c.Means) {
			out.WriteString(wrap.Hanging(indent, strings.TrimRight(line, "\n"), look.Width))
		}
		if said[c.Remedy] {
			continue
		}
		said[c.Remedy] = true
		mark := "-> "
		for line := range strings.Lines(c.Remedy) {
			out.WriteString(wrap.Hanging(indent+mark, strings.TrimRight(line, "\n"), look.Width))
			mark = "   "
		}
	}
	switch {
	case counts[Missing] > 0:
		fmt.Fprintf(&out, "netnice does not work here yet: %d missing.\n", counts[Missing])
	case unseen > 0:
		out.WriteString(wrap.Hanging("", fmt.Sprintf("Whether netnice works here only root can find out: %d of %d checks could not be made.", unseen, len(report.Checks)), look.Width))
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
