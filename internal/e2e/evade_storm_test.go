package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

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
	}{
		{"1 KB", 1000, 400e3},
		{"13 KB", 13_000, 2e6},
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
    data = bytes(int(sys.argv[4]))
    for i in range(int(sys.argv[3]) // 2):
        try:
            if os.fork():
                continue
        except OSError:
            time.sleep(0.01)
            continue
        try:
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
`, f.to(testutil.DefaultPort), fmt.Sprintf("[%s]:%d", f.B6, testutil.DefaultPort), fmt.Sprint(processes), fmt.Sprint(storm.bytes))
			x.read("ready")
			f.must("set", "--pid", x.pid(), "--up", fmt.Sprintf("%.0fB/s", storm.limit))
			begin := f.wire()
			x.tell("go")
			x.read("going")
			for range 2 {
				x.wait("done", time.Duration(processes)*30*time.Millisecond)
			}
			end := f.wire()
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
