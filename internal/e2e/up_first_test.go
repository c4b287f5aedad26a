package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// Numbered datagrams at ten times the limit, and who counts which did not come.
const (
	numberedFlood = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
begin, times = time.monotonic(), []
while len(times) < 4000:
    ahead = len(times) * 1400 / 1e7 - (time.monotonic() - begin)
    if ahead > 0.0005:
        time.sleep(ahead)
    s.send(struct.pack("!I", len(times)) + bytes(1396))
    times.append(time.monotonic() - begin)
    if times[-1] > 2:
        break
time.sleep(0.5)
say("sent", *("%.6f" % t for t in times))
`
	numberedReceiver = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
s.bind(("", int(sys.argv[1])))
got = set()

def read():
    while True:
        got.add(struct.unpack("!I", s.recv(2000)[:4])[0])

threading.Thread(target=read, daemon=True).start()
say("ready")
wait()
say("got", *sorted(got))
`
)

// The first flood under a limit loses what is too much only until its queue is
// there, and nothing after.
func TestUpUDPFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.preload = true
	f := newInbound(s, testutil.MustPair(t))
	rx := f.python(options{in: f.B}, numberedReceiver, "6001")
	rx.read("ready")
	time.Sleep(1500 * time.Millisecond) // the daemon has loaded what it may need
	begin := testutil.Now()
	tx := f.python(options{in: f.A, under: []string{program, "run", "--up", "1MB/s", "--"}}, numberedFlood, f.B4.String(), "6001")
	times := numbers(t, tx.read("sent"))
	rx.tell("how many")
	came := map[int]bool{}
	for _, word := range numbers(t, rx.read("got")) {
		came[int(word)] = true
	}
	lost, last := 0, 0.0
	for i, at := range times {
		if !came[i] {
			lost, last = lost+1, at
		}
	}
	t.Logf("%d of %d datagrams were lost, the last after %.0f ms", lost, len(times), last*1e3)
	if last > 0.5 && cpus.excuse(begin, testutil.Now()) == "" {
		t.Errorf("a datagram was lost %.0f ms after the first", last*1e3)
	}
}

// numbers are those in a line.
func numbers(t *testing.T, line string) (out []float64) {
	t.Helper()
	for _, word := range strings.Fields(line) {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}
