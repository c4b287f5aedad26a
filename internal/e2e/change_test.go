package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A limit changes in mid-transfer (demand 4 of the core). Its new rate holds within 100 ms after the command
// returned.

func TestChangeInMidTransfer(t *testing.T) {
	t.Parallel()
	for _, connections := range testutil.Subset([]int{1, 16}, 1) {
		t.Run(fmt.Sprintf("%d connections", connections), func(t *testing.T) {
			f := newField(upStage(t))
			x := f.send(testbed.SenderConfig{Connections: connections})
			time.Sleep(200 * time.Millisecond)
			for _, step := range []struct {
				say  string
				rate float64
			}{{"10MB/s", 10e6}, {"1MB/s", 1e6}, {"50MB/s", 50e6}} {
				at := f.must("set", "--pid", x.pid(), "--up", step.say)
				f.holds(step.say, at, step.rate, x.port)
			}
			f.free("lifted", f.must("unset", "--pid", x.pid()), freely, x.port)
		})
	}
}

// Hundreds of connections, each of which waits for its turn, follow a lowered limit at once: neither does the former rate
// go on, nor do they stand still until all is paid that has left.
func TestLoweredForManyConnections(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.sender(testbed.SenderConfig{Connections: 300})
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	x.begin()
	time.Sleep(4 * time.Second) // each has its turn
	f.must("set", "--pid", x.pid(), "--up", "500kB/s")
	f.holdsEachSecond(500e3)
}

// Hundreds of connections that run at the path's rate have a new limit: it holds from the first second on, although
// each of them has a chunk of 64 KB ready.
func TestNewLimitForManyConnections(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{Connections: 300})
	time.Sleep(time.Second)
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	f.holdsEachSecond(1e6)
}

// holdsEachSecond fails unless each of the next four seconds has 0.5 to 1.75 of the rate, in bytes/s.
func (f *field) holdsEachSecond(rate float64) {
	f.t.Helper()
	last := f.wire()
	var each []float64
	for range 4 {
		time.Sleep(time.Second)
		now := f.wire()
		got, _ := now.since(last)
		each, last = append(each, got/rate), now
	}
	f.t.Logf("each second, of the limit: %.2f", each)
	if slices.Max(each) > 1.75 || slices.Min(each) < 0.5 {
		f.t.Errorf("each second, of the limit: %.2f", each)
	}
}

// The tree and the user have a limit at once: the lower one holds, whichever it is.
func TestChangeOnTwoLevels(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestChangeInMidTransfer and TestNestedTrees")
	t.Parallel()
	spare := newUsers()
	for _, connections := range testutil.Subset([]int{1, 16}, 1) {
		t.Run(fmt.Sprintf("%d connections", connections), func(t *testing.T) {
			f := newField(upStage(t))
			user := itoa(spare)
			x := f.send(testbed.SenderConfig{Connections: connections, UID: spare})
			time.Sleep(200 * time.Millisecond)
			f.must("set", "--pid", x.pid(), "--up", "10MB/s")
			f.holds("tree 10, user 20", f.must("set", "--user", user, "--up", "20MB/s"), 10e6, x.port)
			f.holds("tree 10, user 1", f.must("set", "--user", user, "--up", "1MB/s"), 1e6, x.port)
			f.must("set", "--user", user, "--up", "50MB/s")
			f.holds("tree 80, user 50", f.must("set", "--pid", x.pid(), "--up", "80MB/s"), 50e6, x.port)
			f.holds("tree lifted, user 50", f.must("unset", "--pid", x.pid()), 50e6, x.port)
			f.free("lifted", f.must("unset", "--user", user), freely, x.port)
		})
	}
}

// A process inside one blocking send obeys. The limit at the start makes the send last.
func TestChangeInsideOneSend(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestChangeInMidTransfer")
	t.Parallel()
	f := newField(upStage(t))
	x := f.sender(testbed.SenderConfig{Mode: testbed.BigSend, Bytes: 0x7ffff000}) // the most that one call takes
	f.must("set", "--pid", x.pid(), "--up", "60MB/s")
	f.holds("60 MB/s", x.begin().Add(300*time.Millisecond), 60e6, x.port)
	f.holds("3 MB/s", f.must("set", "--pid", x.pid(), "--up", "3MB/s"), 3e6, x.port)
	f.holds("40 MB/s", f.must("set", "--pid", x.pid(), "--up", "40MB/s"), 40e6, x.port)
	select {
	case <-x.Done():
		t.Error("the send has ended, so that this showed nothing")
	default:
	}
	f.free("lifted", f.must("unset", "--pid", x.pid()), freely, x.port)
}

// The test sets and lifts limits in turn: each one holds, and each time the connection is free again.
func TestSetAndUnsetAgain(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.send(testbed.SenderConfig{Connections: 2})
	for range 4 {
		at := f.must("set", "--pid", x.pid(), "--up", "4MB/s")
		// TCP needs a timeout of 200 ms to repeat the data that a flow of GB/s lost before the limit.
		f.holdsFor("limited", at.Add(200*time.Millisecond), 400*time.Millisecond, 4e6, 0.07, x.port)
		at = f.must("unset", "--pid", x.pid())
		if got := f.rate(at.Add(settle), at.Add(settle+200*time.Millisecond), x.port); got < freely {
			t.Errorf("%.0f bytes/s after the limit", got)
		}
	}
}

// A connection carries keystrokes, or nothing, under a low limit. When the limit is lifted, the connection is free
// at once, whatever rate TCP has measured meanwhile: a megabyte arrives as if there had been no limit.
func TestLiftAfterKeystrokes(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestChangeInMidTransfer")
	t.Parallel()
	for _, c := range []struct {
		name, control string
		typed         int
	}{{"cubic", "cubic", 40}, {"bbr", "bbr", 40}, {"cubic, idle", "cubic", 0}, {"bbr, idle", "bbr", 0}} {
		t.Run(c.name, func(t *testing.T) {
			const size = 1 << 20
			f := newField(upStage(t))
			ports := []uint16{f.ports + 1, f.ports + 2}
			x := f.python(options{in: f.A}, `
peers = []
for to in sys.argv[2:4]:
    s = connect(to)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[1].encode())
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peers.append(s)
say("ready")
wait()
for i in range(int(sys.argv[4])):
    for s in peers: s.send(b"x")
    time.sleep(0.05)
say("typed")
wait()
for s in peers: s.sendall(bytes(int(sys.argv[5])))
wait()
`, c.control, f.to(ports[0]), fmt.Sprintf("[%s]:%d", f.B6, ports[1]), itoa(c.typed), itoa(size))
			x.read("ready")
			f.must("set", "--pid", x.pid(), "--up", "300B/s")
			x.tell("type")
			x.read("typed")
			f.must("unset", "--pid", x.pid())
			begin := testbed.Now()
			x.tell("go")
			came := eventually(10*time.Second, func() bool {
				now := testbed.Now()
				return f.rx.Bytes(ports[0], now) >= size && f.rx.Bytes(ports[1], now) >= size
			})
			end := testbed.Now()
			t.Logf("%v after the limit was lifted", end.Sub(begin))
			// It takes 10 ms without a limit; the last keystroke may still wait for its departure time.
			if !came || end.Sub(begin) > time.Second && !excused(t, begin, end) {
				t.Errorf("%.0f and %.0f bytes of %d came", f.rx.Bytes(ports[0], end), f.rx.Bytes(ports[1], end), size)
			}
		})
	}
}

// A connection sends chunks of 20 and 64 kB as a tiny limit comes, so that its next chunk is paid after up to hours. It
// keeps to the limit, and a lifted or raised limit still acts on it at once.
func TestTinyLimitIsLifted(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestChangeInMidTransfer")
	t.Parallel()
	f := newField(upStage(t))
	type subject struct {
		*script
		limit, chunk int
		port         uint16
	}
	var subjects []subject
	for _, limit := range []int{10, 2000} {
		for _, chunk := range []int{20_000, 65_536} {
			for range 3 { // one for each kind of change
				f.ports++
				x := subject{limit: limit, chunk: chunk, port: f.ports}
				x.script = f.python(options{in: f.A}, `
s = connect(sys.argv[1])
chunk = bytes(int(sys.argv[2]))
say("ready")
while True:
    s.sendall(chunk)
    time.sleep(len(chunk) / 2e6)
`, f.to(x.port), itoa(chunk))
				x.read("ready")
				subjects = append(subjects, x)
			}
		}
	}
	time.Sleep(time.Second)
	for _, x := range subjects {
		f.must("set", "--pid", x.pid(), "--up", fmt.Sprintf("%dB/s", x.limit), "--down", "1MB/s")
	}
	first := testbed.Now().Add(2 * time.Second)
	last := first.Add(30 * time.Second)
	f.until(last)
	for _, x := range subjects {
		seconds := last.Sub(first).Seconds()
		sent := f.rate(first, last, x.port) * seconds
		t.Logf("%d B/s, chunks of %d: %.0f bytes in %.0f s", x.limit, x.chunk, sent, seconds)
		if sent > float64(x.limit)*seconds+1.1*float64(x.chunk) {
			t.Errorf("%d B/s, chunks of %d: %.0f bytes in %.0f s", x.limit, x.chunk, sent, seconds)
		}
	}
	for i, x := range subjects {
		switch i % 3 {
		case 0:
			f.must("unset", "--pid", x.pid())
		case 1:
			f.must("set", "--pid", x.pid(), "--up", "500kB/s")
		case 2: // the limit on what it receives stays
			f.must("set", "--pid", x.pid(), "--up", "0")
		}
	}
	after := testbed.Now().Add(time.Second)
	for i, x := range subjects {
		what := fmt.Sprintf("%d B/s, chunks of %d", x.limit, x.chunk)
		if i%3 != 1 {
			f.free(what+", lifted", after, 1e6, x.port)
		} else {
			f.holds(what+", raised", after, 5e5, x.port)
		}
	}
}

// acts checks that what was set at an instant has acted after this time at most. done tells of 20 ms whether it had.
func (f *field) acts(what string, at testbed.Instant, most time.Duration, done func(from, to testbed.Instant) bool) {
	f.t.Helper()
	const step = 20 * time.Millisecond
	took := time.Duration(0)
	for took < 5*time.Second && !done(at.Add(took), at.Add(took+step)) {
		took += step
	}
	f.t.Logf("%s: acts after %v", what, took)
	if took > most {
		f.failUnlessDisturbed(at, 1, fmt.Errorf("%s: acts after %v, want %v at most", what, took, most))
	}
}

// A limit that is raised acts at once on chunks that were deferred, however low it was. Where TCP's timer was set for a
// turn, which is 2 s ahead at most, it acts at that turn (decision 2).
func TestRaisedLimitActsAtOnce(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestChangeInMidTransfer")
	t.Parallel()
	const raised = 10e6
	f := newField(upStage(t))
	for _, c := range []struct {
		low  string
		most time.Duration // until it has half of the raised limit
	}{{"200B/s", 450 * time.Millisecond}, {"2kB/s", 2200 * time.Millisecond}, {"12kB/s", time.Second}} {
		x := f.send(testbed.SenderConfig{Connections: 4})
		f.must("set", "--pid", x.pid(), "--up", c.low)
		time.Sleep(4 * time.Second)
		at := f.must("set", "--pid", x.pid(), "--up", "10MB/s")
		f.acts(c.low+" raised to 10 MB/s", at, c.most, func(from, to testbed.Instant) bool {
			f.until(to.Add(to.Sub(from)))
			return f.rate(from, to, x.port) >= raised/2
		})
		f.holds(c.low+", raised", testbed.Now(), raised, x.port)
		f.must("unset", "--pid", x.pid())
		if _, err := x.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}
