package probe

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/probe"
)

// A capacity within 5% passes, and so does one that is not known, with the reason. A lower bound above the capacity
// misses.
func TestJudge(t *testing.T) {
	result := func(off float64, atLeast bool) figures {
		return figures{CapacityError: off, Measured: probe.Result{Capacity: probe.Figure{AtLeast: atLeast}}}
	}
	for want, list := range map[string][]figures{
		"pass":                {result(0.04, false), result(-0.05, false)},
		"miss":                {result(0.06, false), result(-0.06, false)},
		"pass: a bound":       {result(-0.4, true), result(0.01, true)},
		"miss: a false bound": {result(0.7, true)},
		"pass: not known":     {{CapacityError: -1, NotKnown: "nothing waits"}},
		"miss: not measured":  {{CapacityError: -1, Failed: "no namespace"}},
	} {
		for _, f := range list {
			f.Verdict = f.judge()
			require.Equal(t, want, f.Verdict)
			require.Equal(t, want[:4] == "miss", f.missed())
			require.Contains(t, f.line(), want)
			require.Contains(t, f.line(), f.NotKnown+f.Failed)
		}
	}
}

func TestUnknown(t *testing.T) {
	require.Contains(t, unknown(fmt.Errorf("all: %w", probe.ErrDropped)), "no rate can be told")
	require.NotEmpty(t, unknown(probe.ErrSilent))
	require.Empty(t, unknown(errors.New("no namespace")))
	require.Empty(t, unknown(nil))
}

// A plain run has the paper's queue, and room for three and for ten packets, at five rates.
func TestShallowCells(t *testing.T) {
	cells, err := options{only: "^(0.028|0.2|1|10|100)mbit 4750B (room for (3|10)|queue of 50ms) alone icmp-timestamp$"}.cells()
	require.NoError(t, err)
	require.Len(t, cells, 15)
	for _, c := range cells {
		require.True(t, c.rate != 25_000 || c.burst == 4750)
	}
}
