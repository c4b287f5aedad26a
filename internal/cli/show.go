package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) show() *cobra.Command {
	var subject subjectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show SUBJECT",
		Short:   "Show what holds for a subject, and how it fares",
		Long:    "Show the limits that hold for a subject, from its own to those around it.\n\n" + subjectHelp,
		Example: "  netnice show --user bob\n  netnice show 4711 --json",
		Args:    between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := subject.selection(cmd.Context(), a, args)
			if err != nil {
				return err
			}
			list, err := a.nodesForEach(cmd.Context(), s)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(a.Out, list)
			}
			if len(list.Nodes) == 0 {
				fmt.Fprintf(a.Out, "%s: no limit\n", printable(s.title()))
			}
			for i := range list.Nodes {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				fmt.Fprint(a.Out, a.paragraph(&list.Nodes[i]))
				if list.Nodes[i].Subject.Kind == api.KindHost {
					fmt.Fprintf(a.Out, "  %-9s %s\n", "unknown", a.unknownText(list.Unknown))
				}
			}
			return nil
		},
	}
	subject.add(a, cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// paragraph prints all properties and figures of a node.
func (a *App) paragraph(n *api.Node) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "  %-9s %s\n", key, fmt.Sprintf(format, args...))
	}
	b.WriteString(strings.TrimSpace(printable(n.Subject.String())+" "+ownName(n)) + "\n")
	if len(n.Limits) == 0 {
		line("limit", "none")
	}
	for _, l := range n.Limits {
		from := ""
		if l.Rule != nil {
			from = fmt.Sprintf(", %s:%d", printable(l.Rule.File), l.Rule.Line)
		}
		until := ""
		if l.UntilReboot {
			until = ", until a reboot"
		}
		line("limit", "%s, by %s%s, burst %s%s", a.limitText(l), printable(l.Owner), from, units.FormatDuration(l.BurstNS), until)
	}
	if n.ListedPrefixes > 0 {
		line("file", "%s", count(n.ListedPrefixes, "prefix"))
	}
	for _, name := range n.Names {
		text := strings.Join(name.Addresses, ", ")
		if name.Problem != "" {
			text += " (as before: " + name.Problem + ")"
		}
		line("name", "%s is %s", printable(name.Name), printable(text))
	}
	if n.DSCP != nil {
		line("dscp", "%s (%d), on packets as they leave", dscpText(*n.DSCP), *n.DSCP)
	}
	if n.Line != nil {
		line("line", "limits and figures %s", lineText(n.Line))
	}
	if n.Reserved != nil {
		line("reserved", "%s", a.reservedText(n))
	} else if n.MinBytesPerSec != 0 {
		line("at least", "%s up, of every limit around it", units.FormatRate(n.MinBytesPerSec, a.units))
	}
	if n.MinDownBytesPerSec != 0 {
		line("at least", "%s down, of every limit around it", units.FormatRate(n.MinDownBytesPerSec, a.units))
	}
	if n.Granted != nil {
		line("granted", "%s may be reserved", grantText(n.Granted))
	}
	if n.PromisedBytesPerSec != 0 {
		line("promised", "%s, of %s that may be guaranteed or reserved inside it", units.FormatRate(n.PromisedBytesPerSec, a.units),
			units.FormatRate(n.PromisableBytesPerSec, a.units))
	}
	line("weight", "%d", n.Weight)
	if n.Loopback {
		line("loopback", "limited too")
	}
	if n.MeterOff {
		line("input meter", "off: only what is sent counts in the total")
	}
	a.figures(n, line)
	line("members", "%s, %s", count(n.Processes, "process"), count(n.Sockets, "socket"))
	if !n.Since.IsZero() {
		line("since", "%s", n.Since.Local().Format(time.DateTime))
	}
	return b.String()
}

// figures prints the traffic of a node in each direction, and its backlog.
func (a *App) figures(n *api.Node, line func(key, format string, args ...any)) {
	if n.Up.Uncounted {
		line("sends", "not counted by any limit")
	} else {
		line("sends", "%s", units.FormatRate(n.Up.RateBytesPerSec, a.units))
		line("sent", "%s", units.FormatBytes(n.Up.Bytes, a.units))
	}
	if n.Up.WaitingSockets > 0 {
		line("waiting", "%s, up to %s", a.waitText(n.Up), units.FormatDuration(n.Up.WaitNS))
	} else {
		line("waiting", "nothing")
	}
	if n.Up.Held > 0 {
		line("held", "%s of new connections held back", count(int(n.Up.Held), "first segment"))
	}
	if n.Up.QueuedBytes > 0 || n.Up.Dropped > 0 {
		line("queued", "%s of UDP and the like, %s long; %s", units.FormatBytes(n.Up.QueuedBytes, a.units),
			units.FormatDuration(n.Up.QueueNS), dropText(n.Up))
	}
	if n.Down.Uncounted {
		line("receives", "not counted: it has no limit on that")
	} else {
		line("receives", "%s", units.FormatRate(n.Down.RateBytesPerSec, a.units))
		line("received", "%s", units.FormatBytes(n.Down.Bytes, a.units))
		line("queue", "%s, %s long; %s", units.FormatBytes(n.Down.WaitingBytes, a.units),
			units.FormatDuration(n.Down.WaitNS), dropText(n.Down))
	}
	if n.Total != nil {
		line("together", "%s, %s: what the limit on both was charged", units.FormatRate(n.Total.RateBytesPerSec, a.units),
			units.FormatBytes(n.Total.Bytes, a.units))
	}
}

// dropText says how many packets were dropped, and gives the known reasons.
func dropText(u api.Usage) string {
	var why []string
	for _, d := range []struct {
		n    uint64
		what string
	}{
		{u.DroppedFor.QueueFull, "queue full"},
		{u.DroppedFor.NoQueue, "no queue"},
		{u.DroppedFor.Ahead, "ahead of the limit without a daemon"},
	} {
		if d.n > 0 {
			why = append(why, fmt.Sprintf("%d %s", d.n, d.what))
		}
	}
	text := count(int(u.Dropped), "packet") + " dropped"
	if len(why) == 0 {
		return text
	}
	return text + " (" + strings.Join(why, ", ") + ")"
}
