package e2e

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// stampReceiver receives datagrams that contain the time at which they were sent. Its arguments are the seconds that it
// skips after the first datagram, and the seconds of which it counts the datagrams. It prints the rate in IP bytes per
// second, and the median, the 99th percentile and the maximum of the delays in seconds.
const stampReceiver = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 6001))
say("ready")
skip, last = float(sys.argv[1]), float(sys.argv[2])
delays, begin, got = [], None, 0
while begin is None or time.monotonic() < begin + skip + last:
    data = s.recv(2048)
    now = time.monotonic()
    begin = begin or now
    if now < begin + skip:
        continue
    got += len(data) + 28
    delays.append(now - struct.unpack("d", data[:8])[0])
delays.sort()
say("delays", got / last, delays[len(delays) // 2], delays[-1 - len(delays) // 100], delays[-1])
`

// stampSender sends such datagrams to an address at three times a rate.
const stampSender = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
rate = 3 * float(sys.argv[2])
sent, begin = 0, time.monotonic()
while True:
    now = time.monotonic()
    if begin + sent / rate > now + 0.001:
        time.sleep(begin + sent / rate - now)
    s.sendto(struct.pack("d", time.monotonic()) + bytes(1392), (sys.argv[1], 6001))
    sent += 1428
`

// More datagrams arrive than a limit lets through. They wait for 50 ms or two packets' time at most, from the first
// one on: a receiver has no use for late ones.
func TestDownDatagramDelay(t *testing.T) {
	t.Parallel()
	for _, limit := range testutil.Subset([]float64{300e3, 10e3, 100e3, 1e6, 10e6}, 0) {
		t.Run(fmt.Sprintf("%.0fkB", limit/1e3), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			rx := f.python(options{in: f.A, under: []string{netniceBinary, "run", "--down", fmt.Sprintf("%.0fB/s", limit), "--"}}, stampReceiver, "0", "4")
			rx.read("ready")
			f.python(options{in: f.B}, stampSender, f.A4.String(), fmt.Sprint(limit))
			begin := testbed.Now()
			var rate, median, late, most float64
			if _, err := fmt.Sscan(rx.read("delays"), &rate, &median, &late, &most); err != nil {
				t.Fatal(err)
			}
			t.Logf("%.3f of the limit; %.0f ms late, 99%% at most %.0f, all %.0f", rate/limit, 1e3*median, 1e3*late, 1e3*most)
			bound := math.Max(0.05, 2*1428/limit) + 1428/limit
			if late > bound+0.02 && !excused(t, begin, testbed.Now()) {
				t.Errorf("99%% of the datagrams come within %.0f ms, want %.0f", 1e3*late, 1e3*bound)
			}
			if rate < 0.9*limit-1428 || rate > 1.05*limit+2*1428 {
				t.Errorf("%.0f bytes/s come of a limit of %.0f", rate, limit)
			}
		})
	}
}

// Beside a flood of datagrams another program of the user makes a short connection at a time, and gets a small answer by
// each. Together they use up the user's limit. The flood's datagrams wait for 50 ms at most all the same: the queue does
// not stay full if both together get a little more than the limit.
func TestDownDatagramDelayBesideConnections(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
	const limit, bound = 1e6, 0.05
	uid := spare + 58
	f.must("set", "--user", itoa(uid), "--down", "1MB/s")
	f.python(options{in: f.B}, `
s = socket.create_server(("", 6002))
say("ready")
while True:
    c, _ = s.accept()
    c.sendall(bytes(12000))
    c.close()
`).read("ready")
	flood := f.python(options{in: f.A, uid: uid}, stampReceiver, "4", "4")
	flood.read("ready")
	f.python(options{in: f.A, uid: uid}, `
while True:
    s = socket.create_connection((sys.argv[1], 6002))
    while s.recv(65536):
        pass
    s.close()
    time.sleep(0.02)
`, f.B4.String())
	f.python(options{in: f.B}, stampSender, f.A4.String(), fmt.Sprint(limit))
	begin := testbed.Now()
	var rate, median, late, most float64
	if _, err := fmt.Sscan(flood.read("delays"), &rate, &median, &late, &most); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.3f of the limit; %.0f ms late, 99%% at most %.0f, all %.0f", rate/limit, 1e3*median, 1e3*late, 1e3*most)
	if rate > 1.02*limit {
		t.Errorf("%.0f bytes/s of the flood come, more than the limit of %.0f", rate, limit)
	}
	if excused(t, begin, testbed.Now()) {
		return
	}
	// 10 ms are half of the path's round trip.
	if median > bound+0.01 {
		t.Errorf("half of the datagrams come within %.0f ms, want %.0f", 1e3*median, 1e3*bound)
	}
	if rate < 0.8*limit {
		t.Errorf("%.0f bytes/s of the flood come of a limit of %.0f", rate, limit)
	}
}
