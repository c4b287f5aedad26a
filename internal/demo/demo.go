// Package demo shows netnice's work within a minute, on real traffic. It makes network namespaces, starts programs
// that send through them, and limits these with the netnice command like any user. It draws the counts of the
// receiver, and checks the figures. It owns the story and its picture; namespaces and traffic are testutil's.
//
// It never touches a real network, a daemon that ran before, or a limit that it did not set. It leaves nothing
// behind, also when it is interrupted.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/netnice/netnice/internal/testbed"
)

// Options holds the options of a demo.
type Options struct {
	JSON bool      // prints the figures only
	Out  io.Writer // output of the demo
	// Netnice is the path of the program that sets the limits; "" = the
	// running program itself.
	Netnice string
	// Interactive draws a live chart, which needs a terminal behind Out;
	// otherwise the demo prints lines as it goes.
	Interactive bool
}

// ErrFarOff says that a figure was not as netnice promises.
var ErrFarOff = errors.New("figures are far off what is wanted")

// Interactive says whether out is a terminal.
func Interactive(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// netnice runs a netnice command and returns its output.
type netnice interface {
	Output(ctx context.Context, args ...string) ([]byte, error)
}

// Run shows the demo. Its caller must have called testbed.MaybeRunTraffic at the start of main. The error is
// ErrFarOff if only a figure was wrong, and context.Canceled after an interrupt.
func Run(ctx context.Context, o Options) error {
	if err := testbed.Privileged(); err != nil {
		return err
	}
	if o.Netnice == "" {
		o.Netnice = "/proc/self/exe"
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	d := newDirector(testbed.Command{Path: o.Netnice})
	var err error
	switch {
	case o.JSON:
		err = d.direct(ctx, func(State) {})
	case o.Interactive:
		err = runLive(ctx, cancel, d, o.Out)
	default:
		p := &plain{out: o.Out}
		err = d.direct(ctx, p.show)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the demo did not end within %v and was taken down: %w", longest, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted, and taken down: %w", err)
	case err != nil:
		return err
	}
	if o.JSON {
		err = writeJSON(o.Out, d.state)
	} else {
		_, err = io.WriteString(o.Out, Table(d.state.Figures, styleFor(o.Interactive && os.Getenv("NO_COLOR") == "")))
	}
	return errors.Join(err, verdict(d.state.Figures))
}

// longest bounds the whole demo, in case it hangs; it takes about 40 s.
const longest = 90 * time.Second

// verdict names the figures that are far off.
func verdict(figures []Figure) error {
	var off []string
	for _, f := range figures {
		if f.Verdict == Off {
			off = append(off, fmt.Sprintf("%s: %s instead of %s", f.Step, f.Text, f.Wanted))
		}
	}
	if len(off) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrFarOff, strings.Join(off, "; "))
}

func writeJSON(out io.Writer, s State) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Version string   `json:"version"`
		Seconds float64  `json:"seconds"`
		Figures []Figure `json:"figures"`
	}{"v1", s.Elapsed.Seconds(), s.Figures})
	if err != nil {
		return fmt.Errorf("print figures: %w", err)
	}
	return nil
}
