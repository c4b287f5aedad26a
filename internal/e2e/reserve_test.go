package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// These are the paper's three connections on a line of 10 Mbit/s. One has a small and one a large part, both without
// more; one has a part and the rest. Each has its reservation while another program sends by many connections. The
// part of a closed connection is available at once. A reservation that does not fit is refused.
func TestReserve(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestReserveSocket and internal/clock TestReservation, TestKernelReservationIsModel")
	t.Parallel()
	f := newField(upStage(t))
	const line = 1.25e6
	link := linkOf(t, f.A, testbed.Device)
	id := link[len("link:"):]
	reserve := func(x *flow, period, slice string, more ...string) {
		t.Helper()
		f.must(append([]string{"reserve", "--pid", x.pid(), "--link", id, "--period", period, "--slice", slice}, more...)...)
	}
	c1, c2, c3 := f.send(testbed.SenderConfig{}), f.send(testbed.SenderConfig{}), f.send(testbed.SenderConfig{To: "6"})
	f.refused(f.netnice("reserve", "--pid", c1.pid(), "--link", id, "--period", "10ms", "--slice", "1ms"), "no limit on sending stands on it", "netnice link")
	f.must("set", link, "--up", "10mbit")
	reserve(c1, "200ms", "3.6ms")
	reserve(c2, "10ms", "1.2ms", "--extra")
	reserve(c3, "10ms", "6ms")
	check := func(what string, want map[*flow]float64) {
		t.Helper()
		f.judge(testbed.Now().Add(1500*time.Millisecond), 3*time.Second, func(from, to testbed.Instant) error {
			for x, part := range want {
				got := f.rate(from, to, x.port)
				t.Logf("%s: port %d %.4f of the line, wanted %.4f", what, x.port, got/line, part)
				tolerance := max(0.02, 0.002/part) // a packet at the edge
				if x.port > c3.port {
					tolerance = 0.06 // a part of the rest, by 32 connections of two packets
				}
				if err := compare(what, got, part*line, tolerance); err != nil {
					return err
				}
			}
			return nil
		})
	}
	check("three", map[*flow]float64{c1: 0.018, c2: 0.382, c3: 0.6})

	others := f.send(testbed.SenderConfig{Connections: 32})
	check("beside 32 connections", map[*flow]float64{c1: 0.018, c3: 0.6, c2: 0.12 + 0.131, others: 0.131})

	r := f.netnice("reserve", "--pid", others.pid(), "--link", id, "--period", "100ms", "--slice", "30ms")
	f.refused(r, "a reservation of 375 kB/s does not fit into the limit of 1.25 MB/s on "+link, "ask for what is left")

	f.must("reserve", "--pid", c3.pid(), "--release")
	check("one released", map[*flow]float64{c1: 0.018, c3: 0.2873, c2: 0.12 + 0.2873, others: 0.2873})

	f.must("set", link, "--up", "20mbit")
	check("a faster line", map[*flow]float64{c1: 2 * 0.018})
	if err := others.Close(); err != nil {
		t.Fatal(err)
	}
	f.must("unset", link)
	f.free("without a limit on the link", testbed.Now().Add(time.Second), 20e6, c1.port, c2.port, c3.port)
	if n := f.nodes()["pid:"+c1.pid()]; n.Reserved == nil || n.MinBytesPerSec != 0 {
		t.Errorf("a reservation of a link without a limit is shown as %+v", n)
	}
	f.must("set", link, "--up", "10mbit")
	check("the limit is back", map[*flow]float64{c1: 0.018})
}
