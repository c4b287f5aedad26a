package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A program has many slow sockets. One end connects, with the option, and the other accepts; either end sends.
const (
	slowMany = 100
	slowRate = 3000.0
	// The span has whole periods of two kinds of sockets: those that send a segment in 0.5 s, and those that get two
	// and a part in 1.08 s. In step or not, it contains each window equally often.
	slowQuarters = 26
	slowSeconds  = slowQuarters / 4.0
)

// slowSockets sends or receives. A receiver waits for the number of seconds in the last argument. Then it counts in
// quarters of a second for slowSeconds.
const slowSockets = `
import selectors
sends, host, option, settle = sys.argv[1] == "send", sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sockets = []
if host:
    for _ in range(100):
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_TCP, option, struct.pack("I", 3000))
        s.connect((host, 7001))
        sockets.append(s)
else:
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind(("", 7001))
    l.listen(100)
    say("ready")
    sockets = [l.accept()[0] for _ in range(100)]
chosen = selectors.DefaultSelector()
for i, s in enumerate(sockets):
    s.setblocking(False)
    if sends:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
    chosen.register(s, selectors.EVENT_WRITE if sends else selectors.EVENT_READ, i)
say("connected")
each, spans, begin = [0] * 100, [0] * 26, time.monotonic()
while (now := time.monotonic() - begin) < settle + 6.5:
    for key, _ in chosen.select(0.1):
        if sends:
            key.fileobj.send(bytes(4096))
            continue
        n = len(key.fileobj.recv(1 << 16))
        at = int((time.monotonic() - begin - settle) // 0.25)
        if 0 <= at < 26:
            each[key.data] += n
            spans[at] += n
if not sends:
    say("got", *each, *spans)
wait()
`

// slowFigures holds the counts of slowSockets, in bytes of payload.
type slowFigures struct {
	sum, least, most float64 // over sockets
	quarters         []float64
}

func slowOnes(t *testing.T, words string) (g slowFigures) {
	t.Helper()
	var all []float64
	for word := range strings.FieldsSeq(words) {
		var n float64
		if _, err := fmt.Sscan(word, &n); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	if len(all) != slowMany+slowQuarters {
		t.Fatalf("%d figures", len(all))
	}
	each := all[:slowMany]
	for _, n := range each {
		g.sum += n
	}
	g.least, g.most, g.quarters = slices.Min(each), slices.Max(each), all[slowMany:]
	return g
}

// slowRun has 100 sockets that A connects, with an option, and their accepted ends in B send or receive. excuse
// names the disturbance of the machine, if any, for late data.
func slowRun(t *testing.T, connects, accepts, option, settle string) (g slowFigures, excuse string) {
	t.Helper()
	f := newInbound(stageInOwnCgroup(t), testutil.MustPair(t))
	b := f.python(options{in: f.B}, slowSockets, accepts, "", "0", settle)
	b.read("ready")
	a := f.python(options{in: f.A}, slowSockets, connects, f.B4.String(), option, settle)
	a.read("connected")
	begin := testbed.Now()
	b.read("connected")
	counts := a
	if accepts == "receive" {
		counts = b
	}
	g = slowOnes(t, counts.read("got"))
	// A late reader also counts earlier data.
	return g, cpus.excuse(begin, testbed.Now())
}

// A program has many slow sockets: each has its rate, and their sum is smooth.
func TestSocketOptionMany(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSocketOption")
	t.Parallel()
	g, excuse := slowRun(t, "send", "receive", "7001", "4")
	uneven := 0
	for _, n := range g.quarters {
		if n < g.sum/slowQuarters*0.75 || n > g.sum/slowQuarters*1.25 {
			uneven++
		}
	}
	t.Logf("each %.3f to %.3f of its rate; in each quarter of a second: %v", g.least/slowSeconds/slowRate*perByte, g.most/slowSeconds/slowRate*perByte, g.quarters)
	switch err := compare("in sum", g.sum/slowSeconds*perByte, slowRate*slowMany, 0.03); {
	case err == nil && uneven <= 8:
	case excuse == "":
		t.Errorf("%v; %d of %d quarters of a second are uneven", err, uneven, slowQuarters)
	default:
		t.Logf("not judged: %v, %d uneven, but %s", err, uneven, excuse)
	}
}

// Many slow receivers of a program begin together: each gets its rate, and their sum is smooth.
func TestSocketOptionManyReceive(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSocketOptionReceives")
	t.Parallel()
	g, excuse := slowRun(t, "receive", "send", "7002", "6")
	mean, squares := g.sum/slowQuarters, 0.0
	for _, n := range g.quarters {
		squares += (n - mean) * (n - mean)
	}
	deviation := math.Sqrt(squares/slowQuarters) / mean
	t.Logf("each %.3f to %.3f of its rate; standard deviation of quarters of a second %.3f: %v",
		g.least/slowSeconds/slowRate*perByte, g.most/slowSeconds/slowRate*perByte, deviation, g.quarters)
	// A window of 3 KB is two segments and a part, with more headers than perByte has.
	const headers = (3072 + 3*52.0) / 3072 / perByte
	// The deviation was 0.15 to 0.36, 0.92 without phases, and 4.3 with large first windows too.
	switch err := compare("in sum", g.sum/slowSeconds*perByte*headers, slowRate*slowMany, 0.03); {
	case err == nil && deviation <= 0.5:
	case excuse == "":
		t.Errorf("%v; standard deviation %.3f", err, deviation)
	default:
		t.Logf("not judged: %v, deviation %.3f, but %s", err, deviation, excuse)
	}
}
