package e2e

import (
	"fmt"
	"math"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// More datagrams arrive than a limit lets through. They wait for 50 ms or two packets' time at most, from the first
// one on: a receiver has no use for late ones.
func TestDownDatagramDelay(t *testing.T) {
	t.Parallel()
	for _, limit := range testutil.Subset([]float64{300e3, 10e3, 100e3, 1e6, 10e6}, 0) {
		t.Run(fmt.Sprintf("%.0fkB", limit/1e3), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			rx := f.python(options{in: f.A, under: []string{program, "run", "--down", fmt.Sprintf("%.0fB/s", limit), "--"}}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 6001))
say("ready")
delays, begin, got = [], None, 0
while begin is None or time.monotonic() < begin + 4:
    data = s.recv(2048)
    now = time.monotonic()
    begin = begin or now
    got += len(data) + 28
    delays.append(now - struct.unpack("d", data[:8])[0])
delays.sort()
say("delays", got / 4, delays[len(delays) // 2], delays[-1 - len(delays) // 100], delays[-1])
`)
			rx.read("ready")
			f.python(options{in: f.B}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
rate = 3 * float(sys.argv[2])
sent, begin = 0, time.monotonic()
while True:
    now = time.monotonic()
    if begin + sent / rate > now + 0.001:
        time.sleep(begin + sent / rate - now)
    s.sendto(struct.pack("d", time.monotonic()) + bytes(1392), (sys.argv[1], 6001))
    sent += 1428
`, f.A4.String(), fmt.Sprint(limit))
			begin := testutil.Now()
			var rate, median, late, most float64
			if _, err := fmt.Sscan(rx.read("delays"), &rate, &median, &late, &most); err != nil {
				t.Fatal(err)
			}
			t.Logf("%.3f of the limit; %.0f ms late, 99%% at most %.0f, all %.0f", rate/limit, 1e3*median, 1e3*late, 1e3*most)
			bound := math.Max(0.05, 2*1428/limit) + 1428/limit
			if late > bound+0.02 && cpus.excuse(begin, testutil.Now()) == "" {
				t.Errorf("99%% of the datagrams come within %.0f ms, want %.0f", 1e3*late, 1e3*bound)
			}
			if rate < 0.9*limit-1428 || rate > 1.05*limit+2*1428 {
				t.Errorf("%.0f bytes/s come of a limit of %.0f", rate, limit)
			}
		})
	}
}
