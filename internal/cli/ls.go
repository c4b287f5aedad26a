package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) ls() *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List limits as a tree, with rates, volumes and what waits; and shares of the processors",
		Long: `List every subject that has a limit, below the one that encloses it.

  RATE      what it sends now, over the last second
  SENT      IP bytes since the limit was set
  WAITING   bytes in the send buffers of sockets that wait for their turn
  LONGEST   the longest of these waits, from now
  PROCS, SOCKS   members now, and TCP sockets whose traffic counts here
  DOWN, RECEIVED what comes in now, and IP bytes since the limit was set: where
                 a limit on that stands
  POWER, CPU     the share of the processors (netnice power), and what of a
                 processor was used over the last second: where one has a share

Processes that have a share of the processors and no limit come below the tree. The last line, "unknown", is traffic of which no process is known, since netnice
came up; netnice status tells of what kind. It is counted while a limit stands on
the host; what comes in, while one on that stands, too.

The destination of a limit (--to) is shown to administrators, to who has set it, to whose traffic it
limits, and to all where an administrator's limit is on everybody's traffic; to others it is "(hidden)".

On a narrow terminal the last columns are left out.`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return a.list(cmd.Context(), asJSON, false)
			}
			if interval < 100*time.Millisecond {
				return fail("write 1s, or 100ms at least", "--interval %v is too short", interval)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.watch(ctx, asJSON, interval)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted; with --json a line each")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "`time` between two looks")
	return cmd
}

// watch lists until ctx ends.
func (a *App) watch(ctx context.Context, asJSON bool, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := a.list(ctx, asJSON, true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// list prints all nodes once; again says that this is one of many.
func (a *App) list(ctx context.Context, asJSON, again bool) error {
	var list *api.NodeList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) error {
		var err error
		list, err = c.Nodes(ctx)
		return err
	})
	width, height := a.System.Terminal(a.Out)
	switch {
	case err != nil:
		return err
	case asJSON && again:
		if err := json.NewEncoder(a.Out).Encode(list); err != nil {
			return fmt.Errorf("print JSON: %w", err)
		}
		return nil
	case asJSON:
		return writeJSON(a.Out, list)
	}
	text := a.tree(list, width)
	if again && width > 0 {
		// Redraw in place, line by line, so that nothing flickers.
		text = cut(text, height)
		text = ansi.CursorHomePosition + strings.ReplaceAll(text, "\n", ansi.EraseLineRight+"\n") + ansi.EraseScreenBelow
	} else if again {
		text += "\n"
	}
	_, err = fmt.Fprint(a.Out, text)
	return err
}

// cut makes a text fit a terminal of that many lines, the one of the cursor
// included, and says how many lines there is no room for.
func cut(text string, height int) string {
	lines := strings.SplitAfter(text, "\n") // the last is empty
	if over := len(lines) - height; height > 2 && over > 0 {
		lines = append(lines[:height-2], fmt.Sprintf("... and %d more: netnice ls\n", over+1))
	}
	return strings.Join(lines, "")
}

// tree prints nodes as ls does, no line wider than width (0 = any).
func (a *App) tree(list *api.NodeList, width int) string {
	nodes := list.Nodes
	if len(nodes)+len(list.Powers) == 0 {
		return "no limits\n"
	}
	t := table{columns: []column{
		{title: "SUBJECT", elastic: true},
		{title: "NAME", drop: 2, elastic: true},
		{title: "LIMIT", elastic: true},
		{title: "RATE", right: true},
		{title: "SENT", right: true, drop: 1},
		{title: "WAITING", right: true, drop: 3},
		{title: "LONGEST", right: true, drop: 4},
		{title: "PROCS", right: true, drop: 5},
		{title: "SOCKS", right: true, drop: 6},
	}}
	unknown := list.Unknown
	down := unknown.Down.Bytes > 0 || slices.ContainsFunc(nodes, func(n api.Node) bool { return receives(&n) })
	if down {
		t.columns = append(t.columns,
			column{title: "DOWN", right: true, drop: 1},
			column{title: "RECEIVED", right: true, drop: 3})
	}
	powers := powersByProcess(list.Powers)
	power := func(*api.Power) []string { return nil }
	if len(powers) > 0 {
		t.columns = append(t.columns, column{title: "POWER", drop: 2, elastic: true}, column{title: "CPU", right: true, drop: 4})
		power = a.powerCells
	}
	for _, branch := range branches(nodes, unicodeLocale(a.Getenv)) {
		n := branch.node
		longest := "-"
		if n.Up.WaitingSockets > 0 || n.Up.QueuedBytes > 0 {
			longest = units.FormatDuration(max(n.Up.WaitNS, n.Up.QueueNS))
		}
		row := []string{
			branch.prefix + printable(n.Subject.String()), ownName(n), a.nodeText(n),
			units.FormatRate(n.Up.RateBytesPerSec, a.units), units.FormatBytes(n.Up.Bytes, a.units),
			a.waitText(n.Up), longest, strconv.Itoa(n.Processes), strconv.Itoa(n.Sockets),
		}
		switch {
		case receives(n):
			row = append(row, units.FormatRate(n.Down.RateBytesPerSec, a.units), units.FormatBytes(n.Down.Bytes, a.units))
		case down:
			row = append(row, "-", "-")
		}
		subject := n.Subject.String()
		t.rows = append(t.rows, append(row, power(powers[subject])...))
		delete(powers, subject)
	}
	for _, p := range list.Powers {
		subject := pidSubject(p.PID).String()
		if powers[subject] == nil { // it has a limit, too
			continue
		}
		row := []string{subject, printable(p.Name), "-", "-", "-", "-", "-", strconv.Itoa(p.Processes), "-"}
		if down {
			row = append(row, "-", "-")
		}
		t.rows = append(t.rows, append(row, power(&p)...))
	}
	if unknown.Up.Bytes > 0 || unknown.Down.Bytes > 0 {
		row := []string{
			"unknown", "", "-", units.FormatRate(unknown.Up.RateBytesPerSec, a.units),
			units.FormatBytes(unknown.Up.Bytes, a.units), "-", "-", "-", "-",
		}
		if down {
			row = append(row, units.FormatRate(unknown.Down.RateBytesPerSec, a.units), units.FormatBytes(unknown.Down.Bytes, a.units))
		}
		t.rows = append(t.rows, append(row, power(nil)...))
	}
	return t.render(width)
}

// powersByProcess are shares of the processors by the subject whose they are.
func powersByProcess(list []api.Power) map[string]*api.Power {
	powers := make(map[string]*api.Power, len(list))
	for i := range list {
		powers[pidSubject(list[i].PID).String()] = &list[i]
	}
	return powers
}

// powerCells are what ls shows of a share of the processors, nil = none.
func (a *App) powerCells(p *api.Power) []string {
	if p == nil {
		return []string{"-", "-"}
	}
	return []string{a.powerText(p), usedText(p)}
}
