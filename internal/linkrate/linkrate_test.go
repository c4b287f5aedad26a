package linkrate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/probe"
)

// link is a link with limits, which keeps each change of them.
type link struct {
	nodes []api.Node
	sets  []api.Wish
	err   error // of Set
}

func (l *link) Nodes(context.Context) ([]api.Node, error) { return l.nodes, nil }

func (l *link) Set(ctx context.Context, change api.Wish) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.sets = append(l.sets, change)
	return l.err
}

func rate(v uint64) *uint64 { return &v }

// limited is a link on which these limits of the administrator's stand; 0 = none.
func limited(up, total uint64) *link {
	n := api.Node{Subject: api.Subject{Kind: api.KindLink, ID: "eth0"}}
	for direction, bytes := range map[api.Direction]uint64{api.Up: up, api.Total: total, api.Down: 7} {
		if bytes != 0 {
			n.Limits = append(n.Limits, api.Limit{Owner: "admin", Direction: direction, BytesPerSec: bytes})
		}
	}
	n.Limits = append(n.Limits, api.Limit{Owner: "1000", Direction: api.Up, BytesPerSec: 1})
	return &link{nodes: []api.Node{{Subject: api.Subject{Kind: api.KindHost}, Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 9}}}, n}}
}

// The limits on egress are off during the measurement, and no others. They come back, also after an interruption,
// except the one that was replaced.
func TestLimitsAreLiftedMeanwhile(t *testing.T) {
	const open = whileMeasured
	for name, c := range map[string]struct {
		up, total      uint64
		replaced       bool
		opened, closed []api.Wish
	}{
		"no limit on egress":       {},
		"up":                       {up: 300, opened: []api.Wish{{UpBytesPerSec: rate(open)}}, closed: []api.Wish{{UpBytesPerSec: rate(300)}}},
		"up, replaced":             {up: 300, replaced: true, opened: []api.Wish{{UpBytesPerSec: rate(open)}}},
		"total":                    {total: 500, opened: []api.Wish{{UpBytesPerSec: rate(open), TotalBytesPerSec: rate(open)}}, closed: []api.Wish{{UpBytesPerSec: rate(0), TotalBytesPerSec: rate(500)}}},
		"total, beside a new up":   {total: 500, replaced: true, opened: []api.Wish{{UpBytesPerSec: rate(open), TotalBytesPerSec: rate(open)}}, closed: []api.Wish{{TotalBytesPerSec: rate(500)}}},
		"up and total":             {up: 300, total: 500, opened: []api.Wish{{UpBytesPerSec: rate(open), TotalBytesPerSec: rate(open)}}, closed: []api.Wish{{UpBytesPerSec: rate(300), TotalBytesPerSec: rate(500)}}},
		"up replaced, and a total": {up: 300, total: 500, replaced: true, opened: []api.Wish{{UpBytesPerSec: rate(open), TotalBytesPerSec: rate(open)}}, closed: []api.Wish{{TotalBytesPerSec: rate(500)}}},
	} {
		t.Run(name, func(t *testing.T) {
			on := limited(c.up, c.total)
			ctx, cancel := context.WithCancel(t.Context())
			l, err := Open(ctx, on)
			require.NoError(t, err)
			require.Equal(t, c.opened, on.sets)
			on.sets = nil
			cancel() // Ctrl-C
			require.NoError(t, l.Close(ctx, c.replaced))
			require.Equal(t, c.closed, on.sets)
		})
	}
}

func TestFailureIsReturned(t *testing.T) {
	on := limited(300, 0)
	l, err := Open(t.Context(), on)
	require.NoError(t, err)
	on.err = errors.New("no daemon")
	require.ErrorIs(t, l.Close(t.Context(), false), on.err)
	_, err = Open(t.Context(), on)
	require.ErrorIs(t, err, on.err)
}

// The limit counts what the line carries, by the given overhead or the one that the link has.
func TestLimit(t *testing.T) {
	path := func(size int, capacity, available float64) probe.Result {
		return probe.Result{Size: size, Capacity: probe.Figure{BytesPerSec: capacity}, Available: probe.Figure{BytesPerSec: available}}
	}
	on := limited(0, 0)
	on.nodes[1].Line = &api.Line{OverheadBytes: 10, ATM: true}
	withLine, err := Open(t.Context(), on)
	require.NoError(t, err)
	without, err := Open(t.Context(), limited(0, 0))
	require.NoError(t, err)

	require.Equal(t, Measured{BytesPerSec: 980_000}, without.Limit(path(1500, 1e6, 1e6), nil))
	require.Equal(t, Measured{BytesPerSec: 980_000, Busy: true}, without.Limit(path(1500, 1e6, 8e5), nil))
	unknown := path(1500, 1e6, 0)
	unknown.Available.AtLeast = true
	require.False(t, without.Limit(unknown, nil).Busy, "what others leave is not known")
	require.InDelta(t, 1_480_000*0.98, without.Limit(path(100, 1e6, 1e6), &api.Line{OverheadBytes: 38, LeastBytes: 148}).BytesPerSec, 1)
	require.InDelta(t, 1_696_000*0.98, withLine.Limit(path(1500, 1.5e6, 1.5e6), nil).BytesPerSec, 1, "1510 bytes are 32 cells, 1696 bytes")
	require.Equal(t, Measured{BytesPerSec: 980_000}, withLine.Limit(path(1500, 1e6, 1e6), &api.Line{}), "the request says that there is no overhead")
}
