package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
)

func (a *App) ls() *cobra.Command {
	var asJSON, watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List limits as a tree, with what is sent and received, and what waits; and shares of the processors",
		Long: `List every subject that has a limit, below the one that encloses it.

  UP, DOWN           the lowest limit on what it sends, and on what it receives
  TOTAL              the lowest limit on both together, where one has such a limit
  ALSO               its weight, guarantee, mark and rule, where one has any
  SENT/s, RECEIVED/s how fast it sends and receives, over the last second
  SENT, RECEIVED     IP bytes since the limit was set
  WAITING            bytes that wait for their turn to be sent
  LONGEST            the longest of these waits, from now
  PROCS, SOCKS       members now, and TCP sockets whose traffic counts here
  POWER, CPU         the share of the processors (netnice power), and what of a
                     processor was used over the last second: where one has a share

A limit is what counts: "-" stands where none is there that counts what a subject
sends, or what it receives. What a limit on both together was charged is in
netnice show.

Processes that have a share of the processors and no limit come below the tree. The last line,
"unknown", is traffic of which no process is known, since netnice came up; netnice status tells of
what kind. It is counted while a limit stands on the host; what comes in, while one on that stands,
too. Below come subjects of which sockets have no room for netnice's state; netnice why says more.

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
			ctx, done := a.untilReaderGone(ctx)
			defer done()
			return a.watch(ctx, asJSON, interval)
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until interrupted; with --json a line each")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "`time` between two looks")
	return cmd
}

// watch lists until ctx ends. On a terminal it uses the alternate screen, so that the former text comes back
// afterwards.
func (a *App) watch(ctx context.Context, asJSON bool, interval time.Duration) error {
	if width, _ := a.System.Terminal(a.Out); width > 0 && !asJSON {
		leave, err := a.enterAlternateScreen()
		if err != nil {
			return err
		}
		defer leave()
	}
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

// enterAlternateScreen shows the terminal's other screen, without a cursor, until leave is called.
func (a *App) enterAlternateScreen() (leave func(), err error) {
	if _, err := fmt.Fprint(a.Out, ansi.SetModeAltScreenSaveCursor+ansi.ResetModeTextCursorEnable); err != nil {
		return nil, fmt.Errorf("write to the terminal: %w", err)
	}
	return func() { _, _ = fmt.Fprint(a.Out, ansi.SetModeTextCursorEnable+ansi.ResetModeAltScreenSaveCursor) }, nil
}

// list prints all nodes once; again means that this list is one of a series.
func (a *App) list(ctx context.Context, asJSON, again bool) error {
	var list *api.NodeList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
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

// cut makes a text fit a terminal of a number of lines, the cursor's line included, and says how many lines it left
// out.
func cut(text string, height int) string {
	lines := strings.SplitAfter(text, "\n") // the last line is empty
	if over := len(lines) - height; height > 2 && over > 0 {
		lines = append(lines[:height-2], fmt.Sprintf("... and %d more: netnice ls\n", over+1))
	}
	return strings.Join(lines, "")
}
