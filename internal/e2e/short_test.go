package e2e

import (
	"strconv"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// Connections that end before TCP's own pacing begins cannot outrun a limit.
func TestShortConnections(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.sender(testbed.SenderConfig{Mode: testbed.Short, Connections: 8, ShortWait: true})
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	begin := x.begin()
	// The measurement includes the start: the credit for idle time is 10 ms, and each connection has one segment.
	got := f.rate(begin, begin.Add(3*time.Second), x.port)
	t.Logf("8 short connections at a time: %.3f of the limit", got/1e6)
	if got > 1.05e6 || got < 0.9e6 && !excused(t, begin, testbed.Now()) {
		t.Errorf("short connections send %.0f bytes/s under a limit of 1 MB/s", got)
	}
	report, err := x.Stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections, %d failed", report.Completed, report.Failed)
	if report.Completed < 100 || report.Failed > 0 {
		t.Errorf("%d connections completed and %d failed", report.Completed, report.Failed)
	}
}

// Connections that are closed before any of their data has left cannot outrun it either. None of their data is lost.
func TestForgottenConnections(t *testing.T) {
	t.Parallel()
	const connections, size = 160, 13000
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
wait()
def some():
    for _ in range(int(sys.argv[2]) // 8):
        with connect(sys.argv[1]) as s:
            s.sendall(bytes(int(sys.argv[3])))
threads = [threading.Thread(target=some) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
say("done")
wait()
`, f.to(a), itoa(connections), itoa(size))
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	begin := testbed.Now()
	x.tell("go")
	x.read("done")
	f.until(begin.Add(span))
	// More than the limit leaves: up to 0.1 s of it before its departure time, the credit of eight connections at a
	// time, and handshakes. The result is 1.18 to 1.19.
	got := f.rate(begin, begin.Add(span), a)
	t.Logf("forgotten connections: %.3f of the limit in the first %v", got/1e6, span)
	if got > 1.25e6 {
		t.Errorf("closed connections send %.0f bytes/s under a limit of 1 MB/s", got)
	}
	came := eventually(8*time.Second, func() bool { return f.rx.Bytes(a, testbed.Now()) == connections*size })
	took := testbed.Now().Sub(begin)
	t.Logf("%d bytes took %v", connections*size, took)
	if over := connections * size / took.Seconds(); over > 1.05e6 {
		t.Errorf("%.0f bytes/s from the first to the last of them", over)
	}
	if !came {
		t.Errorf("%.0f bytes came of %d", f.rx.Bytes(a, testbed.Now()), connections*size)
	}
}

// A new connection does not starve next to 64 bulk connections of its own process. A request of 600 bytes gets
// through within twice its fair wait and half a second. The fair wait is a round in which each connection sends a
// segment.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	for _, limit := range []struct {
		say  string
		rate float64
	}{{"1MB/s", 1e6}, {"128KiB/s", 131072}} {
		t.Run(limit.say, func(t *testing.T) {
			t.Parallel()
			const bulk, requests = 64, 10
			f := newField(upStage(t))
			a := f.ports + 1
			x := f.python(options{in: f.A}, `
wait()
for _ in range(int(sys.argv[3])):
    threading.Thread(target=flood, args=(connect(sys.argv[1]),), daemon=True).start()
say("going")
wait()
for _ in range(int(sys.argv[4])):
    begin = time.monotonic()
    with connect(sys.argv[2]) as s:
        s.settimeout(20)
        s.sendall(bytes(600))
        n = 0
        while n < 100:
            n += len(s.recv(100 - n))
    say("took", time.monotonic() - begin)
os._exit(0)
`, f.to(a), f.to(requestPort), itoa(bulk), itoa(requests))
			f.must("set", "--pid", x.pid(), "--up", limit.say)
			x.tell("go")
			x.read("going")
			time.Sleep(time.Second)
			begin := testbed.Now()
			x.tell("ask")
			fair := time.Duration((bulk + 1) * 1500 / limit.rate * float64(time.Second))
			bound := 2*fair + 500*time.Millisecond
			var all []time.Duration
			for range requests {
				took, err := strconv.ParseFloat(x.read("took"), 64)
				if err != nil {
					t.Fatal(err)
				}
				d := time.Duration(took * float64(time.Second))
				all = append(all, d.Round(time.Millisecond))
				if now := testbed.Now(); d > bound && !excused(t, now.Add(-d), now) {
					t.Errorf("a request took %v, want %v at most", d, bound)
				}
			}
			t.Logf("fair wait %v, requests took %v", fair, all)
			to := testbed.Now()
			if to.Sub(begin) > time.Second {
				f.near("together", begin, f.rate(begin, to, a, requestPort), limit.rate, 0.05)
			}
		})
	}
}
