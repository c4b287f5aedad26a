package delay

import (
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
)

func TestCells(t *testing.T) {
	cells := allCells(false)
	require.Len(t, cells, 5*3*2)
	names := map[string]bool{}
	for _, c := range cells {
		names[c.String()] = true
		load := 2 * (questionBytes + packetHeaders) / c.every().Seconds()
		require.LessOrEqual(t, load, askedPart*float64(c.limit)*1.001, c.String())
	}
	require.Len(t, names, len(cells))
	for _, want := range []string{"10kB/s up beside UDP", "1MB/s down beside UDP", "100MB/s total beside TCP"} {
		require.Contains(t, names, want)
	}
	require.Less(t, estimate(cells, window), 20*time.Minute)
	require.Len(t, allCells(true), 3*2)
	require.Less(t, estimate(allCells(true), quickWindow), time.Minute)
	for i := range cells[1:] { // a path is made once
		require.False(t, !cells[i].distant() && cells[i+1].distant(), cells[i+1].String())
	}
}

// The limited programs send where egress is limited, and receive where ingress is limited.
func TestDuties(t *testing.T) {
	a, b := netip.MustParseAddr("10.98.0.1"), netip.MustParseAddr("10.98.0.2")
	crowd, other, web, far, pour := cell{1_000_000, up, udpFlood}.dutiesOf(a, b)
	require.Equal(t, "10.98.0.2:6112", crowd.Flood)
	require.InDelta(t, 3e6, crowd.Rate, 1)
	require.False(t, crowd.Remote)
	require.Equal(t, crowd.Flood, far.Drain)
	require.Equal(t, web.Serve, far.Fetch)
	require.Equal(t, other.Ask, crowd.Ask)
	require.Equal(t, other.Ask, far.Answer)
	require.Equal(t, duties{}, pour)

	crowd, _, web, far, pour = cell{1_000_000, total, tcpBulk}.dutiesOf(a, b)
	require.Equal(t, "10.98.0.1:6113", pour.Bulk)
	require.Equal(t, pour.Bulk, crowd.Read)
	require.Equal(t, far.Serve, web.Fetch)
	require.Empty(t, crowd.Flood+crowd.Bulk+far.Drain+far.Read)
}

func TestDelays(t *testing.T) {
	at := func(ms int) testbed.Instant { return testbed.Instant(0).Add(time.Duration(ms) * time.Millisecond) }
	var asked trips
	for i := range 10 {
		asked.Begun = append(asked.Begun, at(100*i))
		if i != 3 && i != 7 {
			asked.Ended = append(asked.Ended, testbed.Point{T: at(100 * i), D: time.Duration(i+1) * time.Millisecond})
		}
	}
	require.Equal(t, delays{P50: 2, P99: 5, Number: 4, Lost: 1}, delaysOf(asked, at(0), at(500)))
	require.Equal(t, delays{P50: 7, P99: 10, Number: 4, Lost: 1}, delaysOf(asked, at(500), at(1000)))
	none := delaysOf(asked, at(1000), at(2000))
	require.Equal(t, delays{}, none)
	require.Equal(t, "- (0)", none.String())
	require.Equal(t, "2.00 / 5.00 (4)", delaysOf(asked, at(0), at(500)).String())
}

func TestRow(t *testing.T) {
	c := cell{1_000_000, down, udpFlood}
	f := figures{Way: c.way, Beside: c.beside, Used: 0.98, cell: c}
	f.Same = [2]delays{{P50: 50.25, P99: 61, Number: 120, Lost: 380}, {P50: 49, P99: 155, Number: 130, Lost: 370}}
	row := f.row(baseline{Question: delays{P50: 20.31}, HTTP: delays{P50: 41}})
	require.Equal(t, "| 1MB/s | down | UDP | 20.3, 41.0 | 50.2 / 61.0 (120) | 49.0 / 155 (130) | - (0) | - (0) | - (0) | - (0) | 750, 0 | 0.980 |", row)
	lines := strings.Split(header(), "\n")
	require.Len(t, lines, 2)
	require.Equal(t, strings.Count(row, "|"), strings.Count(lines[0], "|"))
	require.Equal(t, strings.Count(row, "|"), strings.Count(lines[1], "|"))
}

// A program asks, fetches and receives a flood, over lo.
func TestRole(t *testing.T) {
	at := func(port uint16) string {
		return netip.AddrPortFrom(netip.MustParseAddr("127.98.0.1"), port).String()
	}
	far := begin(t, duties{Answer: at(questionPort), Serve: at(httpPort), Drain: at(floodPort)})
	near := begin(t, duties{Ask: at(questionPort), Fetch: at(httpPort), Flood: at(floodPort), Rate: 1e6, Every: 5 * time.Millisecond})
	from := testbed.Now()
	near(doStart)
	time.Sleep(200 * time.Millisecond)
	near(doStop)
	time.Sleep(50 * time.Millisecond)
	s := near(doReport)
	for _, d := range []delays{delaysOf(s.Asked, from, s.At), delaysOf(s.Fetched, from, s.At)} {
		require.Greater(t, d.Number, 3)
		require.Positive(t, d.P50)
	}
	require.Positive(t, far(doReport).Came)
}

// begin starts a program here, and returns a function that sends it an order.
func begin(t *testing.T, d duties) func(order string) seen {
	t.Helper()
	orders, in := io.Pipe()
	replies, out := io.Pipe()
	go func() {
		_ = serve(json.NewDecoder(orders), json.NewEncoder(out)) // it ends with the test
	}()
	t.Cleanup(func() { _, _ = in.Close(), replies.Close() })
	to, from := json.NewEncoder(in), json.NewDecoder(replies)
	tell := func(line any) seen {
		t.Helper()
		require.NoError(t, to.Encode(line))
		var a reply
		require.NoError(t, from.Decode(&a))
		require.Empty(t, a.Error)
		return a.Seen
	}
	tell(d)
	return func(order string) seen {
		t.Helper()
		return tell(order)
	}
}
