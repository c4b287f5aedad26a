package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// numberedFlood sends numbered datagrams at ten times the limit. The receiver counts the missing ones.
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

// The first flood under a limit loses its excess only until its queue exists, and nothing after.
func TestUpUDPFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.preload = true
	f := newInbound(s, testutil.MustPair(t))
	rx := f.python(options{in: f.B}, numberedReceiver, "6001")
	rx.read("ready")
	time.Sleep(1500 * time.Millisecond) // the daemon has loaded the programs that it may need
	begin := testbed.Now()
	tx := f.python(options{in: f.A, under: []string{netniceBinary, "run", "--up", "1MB/s", "--"}}, numberedFlood, f.B4.String(), "6001")
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
	if last > 0.5 && !excused(t, begin, testbed.Now()) {
		t.Errorf("a datagram was lost %.0f ms after the first", last*1e3)
	}
}

// firstFlood sends numbered datagrams as fast as it may for 0.2 s from its start on, and waits until they have left.
const firstFlood = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], int(sys.argv[2])))
count, end = 0, time.monotonic() + 0.2
while time.monotonic() < end:
    s.send(struct.pack("!I", count) + bytes(1396))
    count += 1
time.sleep(1)
say("sent", count)
`

// A program that `netnice run` starts finds a queue for its first datagram: a flood waits from its start on. It
// loses no datagram, also if no daemon ran before.
func TestRunDatagramsFromTheFirst(t *testing.T) { // not parallel: a flood beside others' daemons that load is seldom judged
	const (
		limit = 2e6
		size  = 1400 + 28
		// The sum is 0.2 s of the limit, a socket's buffer (212,992 bytes with the kernel's part), and the burst.
		most = 0.2*limit + 300e3
	)
	for name, running := range map[string]bool{"a daemon that stays": true, "no daemon": false} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.preload = true
			p := testutil.MustPair(t)
			if running {
				s.daemonIn(p.A)
				time.Sleep(1500 * time.Millisecond) // the daemon has loaded the programs that it may need
			}
			rx := s.python(options{in: p.B}, numberedReceiver, "6001")
			rx.read("ready")
			begin := testbed.Now()
			tx := s.python(options{in: p.A, under: []string{netniceBinary, "run", "--up", "2MB/s", "--"}}, firstFlood, p.B4.String(), "6001")
			sent := int(numbers(t, tx.read("sent"))[0])
			rx.tell("how many")
			lost := sent - len(numbers(t, rx.read("got")))
			t.Logf("%d datagrams were sent in 0.2 s, %d of them were lost", sent, lost)
			if sent*size > most {
				t.Errorf("%d bytes were sent in the first 0.2 s, want at most %.0f", sent*size, most)
			}
			if excused(t, begin, testbed.Now()) {
				return
			}
			if lost > 0 {
				t.Errorf("%d datagrams were lost", lost)
			}
			if sent*size < 0.1*limit {
				t.Errorf("only %d bytes were sent in the first 0.2 s", sent*size)
			}
		})
	}
}

// numbers returns the numbers in a line.
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
