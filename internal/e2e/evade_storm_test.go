package e2e

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Thousands of processes send a little each on a connection of their own; a hundred thousand with
// NETNICE_TEST_LONG=1.
func TestEvadeByForkStorm(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestForksWhileLimitIsSet and TestGenerated")
	// Not parallel: it floods the machine.
	processes := 2500
	if os.Getenv("NETNICE_TEST_LONG") == "1" {
		processes = 100_000
	}
	for _, storm := range []struct {
		name  string
		bytes int
		limit float64
		first int // bytes on a connection before
	}{
		{"1 KB", 1000, 400e3, 0},
		{"13 KB", 13_000, 2e6, 0},
		{"13 KB after a byte", 13_000, 2e6, 1},
	} {
		t.Run(storm.name, func(t *testing.T) {
			f := newField(upStage(t))
			f.segmented()
			x := f.python(options{in: f.A}, evader+`
import gc
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
ready()
def some():
    data, first = bytes(int(sys.argv[4])), bytes(int(sys.argv[5]))
    for i in range(int(sys.argv[3]) // 2):
        try:
            if os.fork():
                continue
        except OSError:
            time.sleep(0.01)
            continue
        try:
            if first:
                before = socket.create_connection(there)
                before.send(first)
            with socket.create_connection(there) as s:
                s.send(data)
        finally:
            os._exit(0)
child = os.fork()
some()
say("done")
if child == 0:
    os._exit(0)
wait()
`, f.to(testbed.DefaultPort), fmt.Sprintf("[%s]:%d", f.B6, testbed.DefaultPort), fmt.Sprint(processes), fmt.Sprint(storm.bytes), fmt.Sprint(storm.first))
			x.read("ready")
			f.must("set", "--pid", x.pid(), "--up", fmt.Sprintf("%.0fB/s", storm.limit))
			begin := f.wire()
			x.tell("go")
			x.read("going")
			instants, stop := make(chan []wired, 1), make(chan struct{})
			ended := sync.OnceFunc(func() { close(stop) })
			defer ended()
			go func() { instants <- f.wireUntil(stop) }()
			for range 2 {
				x.wait("done", time.Duration(processes)*30*time.Millisecond)
			}
			ended()
			end := f.wire()
			grew := leadGrew(append(<-instants, end), storm.limit)
			t.Logf("the lead over the limit grew by at most %v from one moment to a later one", grew)
			if grew > evadeBurst+evadeForgotten+stormStall {
				t.Error("the lead grew too much")
			}
			rate, packets := end.since(begin)
			t.Logf("%d processes in %v: %.3f of the limit in %.0f packets/s", processes, end.at.Sub(begin.at), rate/storm.limit, packets)
			if err := end.inBudget(begin, storm.limit, evadeBurst+evadeForgotten); err != nil {
				t.Error(err)
			}
			for counter, n := range f.status().Counters {
				if n != 0 {
					t.Errorf("%s: %d", counter, n)
				}
			}
		})
	}
}

// stormStall is how long the receiver's device may take no packets while processes begin.
const stormStall = 200 * time.Millisecond

// wireUntil looks at the wire every 0.2 s until its caller stops it.
func (f *field) wireUntil(stop <-chan struct{}) (all []wired) {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		all = append(all, f.wire())
		select {
		case <-stop:
			return all
		case <-every.C:
		}
	}
}

// leadGrew returns by how much the lead over a limit grew at most from an instant to a later one: time that chunks did not
// use and make up for later counts, too.
func leadGrew(all []wired, limit float64) (most time.Duration) {
	lowest := time.Duration(math.MaxInt64)
	for _, now := range all {
		paid := time.Duration(float64(now.bytes-all[0].bytes) / limit * 1e9)
		ahead := paid - now.at.Sub(all[0].at)
		lowest = min(lowest, ahead)
		most = max(most, ahead-lowest)
	}
	return most
}

// wait is read with another time limit.
func (x *script) wait(word string, limit time.Duration) {
	x.t.Helper()
	select {
	case line, ok := <-x.lines:
		if !ok || line != word {
			x.t.Fatalf("the program printed %q, want %q\n%s", line, word, x.wrong.String())
		}
	case <-time.After(limit):
		x.t.Fatalf("the program does not print %q", word)
	}
}
