package testbed_test

import (
	"math"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// The meter's figures for a flow equal the connection's own counters, with segments and headers, for whole chunks or
// not. The meter has all of them at once.
func TestMeter(t *testing.T) {
	for name, to := range map[string]string{"IPv4": "10.98.0.2:5002", "IPv6": "[fd00:98::2]:5002"} {
		t.Run(name, func(t *testing.T) {
			const each = 20_000_000
			pair, r, s := flow(t, testbed.ReceiverConfig{Ports: []testbed.Port{{Number: 5001}, {Number: 5002}}}, testbed.SenderConfig{To: to, Bytes: each})
			m, err := testbed.StartMeter(pair.A, testbed.Device, 5001, 3)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			from := testbed.Now() // a whole bin lies between it and the traffic
			time.Sleep(2 * testbed.MeterBin)
			start(t, s)
			if got := settled(r, each); got != each {
				t.Fatalf("received %.0f bytes, want %d", got, each)
			}
			time.Sleep(2 * testbed.MeterBin)
			end := testbed.Now()
			report := stop(t, s)
			got, err := m.Rate(5002, from, end)
			if err != nil {
				t.Fatal(err)
			}
			got *= end.Sub(from - testbed.Instant(time.Millisecond)).Seconds()
			c := report.Conns[0]
			want := float64(c.BytesSent) + float64(int(c.DataSegments)*testbed.HeadersOf(c).PerSegment)
			// The tolerance covers the handshake and the end, data sent after the last reading, and the edge of a
			// bin.
			if math.Abs(got/want-1) > 0.03 && c.BytesSent == each {
				t.Errorf("%.0f IP bytes, want %.0f", got, want)
			}
			// The connection's own counters lack what opens and closes it.
			all, segments, err := m.Total()
			if over := float64(all) - want; err != nil || c.BytesSent == each && (over < 0 || over > 10*80) || segments < uint64(c.DataSegments) {
				t.Errorf("%d IP bytes in all, in %d segments, want %.0f in %d: %v", all, segments, want, c.DataSegments, err)
			}
			if got < each*(1+float64(testbed.HeadersOf(c).PerSegment)/1448*0.99) {
				t.Errorf("%.0f IP bytes for %d of payload: headers are missing", got, each)
			}
			if other, err := m.Rate(5001, from, end); other != 0 || err != nil {
				t.Errorf("%.0f bytes/s to a port without traffic, %v", other, err)
			}
			if _, err := m.Rate(5004, from, end); err == nil {
				t.Error("a port that is not on the meter has a rate")
			}
			if _, err := m.Rate(5002, from, from.Add(time.Hour)); err == nil {
				t.Error("there is a rate for after the end of the meter")
			}
		})
	}
}
