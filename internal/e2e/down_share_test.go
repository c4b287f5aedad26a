package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
	"github.com/netnice/netnice/internal/testutil"
)

// Programs share the traffic that a user receives, whatever number of connections each has: equally, by weight, or
// with a guarantee. The others get the part that one program does not use. netnice controls the shares by windows,
// which are at least two segments. At no distance at all such windows do not bind bbr, so the test has a distance.
func TestDownShares(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownModest and internal/clock TestShareByWeight")
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
	const limit = 8e6
	uid := spare + 53
	var rx [3]*testbed.Receiver
	var port [3]uint16
	for i := range rx {
		f.ports += 16
		rx[i], port[i] = f.reader(uid), f.ports+1
	}
	f.must("set", "--user", itoa(uid), "--down", "8MB/s")
	pid := func(i int) string { return itoa(rx[i].PID()) }
	x := f.sendTo(port[0], false, testbed.SenderConfig{})
	f.sendTo(port[1], true, testbed.SenderConfig{Connections: 8})
	begin := testbed.Now()
	parts := func(what string, after testbed.Instant, tolerance float64, want ...float64) {
		t.Helper()
		f.judge(after.Add(time.Second), span, func(from, to testbed.Instant) error {
			f.until(to.Add(15 * time.Millisecond))
			sum := 0.0
			var failed error
			for i, part := range want {
				per := perByte
				if i == 1 {
					per = perByte6
				}
				got := rx[i].Goodput(port[i], from, to) * per
				sum += got
				t.Logf("%s: program %d has %.4f of the limit, wanted %.4f", what, i, got/limit, part)
				if err := comparePart(fmt.Sprintf("%s: program %d", what, i), got, part*limit, max(tolerance, 0.01/part)); failed == nil {
					failed = err
				}
			}
			if err := compare(what+": all", sum, limit, 0.08); err != nil {
				return err
			}
			return failed
		})
	}
	// At a distance of 20 ms one connection reaches its part later than eight do. It has 0.44 of 0.5 after a second,
	// and 0.70 of 0.75 after another one where the processors are busy.
	const late = 2 * time.Second
	parts("1 and 8 connections", begin.Add(late), 0.1, 0.5, 0.5)
	parts("by weight", f.must("set", "--pid", pid(0), "--weight", "300").Add(late), 0.1, 0.75, 0.25)
	parts("in the background", f.must("set", "--pid", pid(0), "--background"), 0.1, 0.0099, 0.9901)
	f.must("unset", "--pid", pid(0))
	f.sendTo(port[2], false, testbed.SenderConfig{Connections: 4})
	f.refused(f.netnice("set", "--pid", pid(0), "--min-down", "8MB/s"), "7.6 MB/s of it may be guaranteed", "ask for what is left")
	guaranteed := f.must("set", "--pid", pid(0), "--min-down", "4MB/s")
	f.judge(guaranteed.Add(5*time.Second), span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond))
		var got [3]float64
		for i := range got {
			got[i] = rx[i].Goodput(port[i], from, to) * perByte
		}
		t.Logf("guaranteed: %.4f, %.4f and %.4f of the limit", got[0]/limit, got[1]/limit, got[2]/limit)
		if got[0] < 4e6*0.97 {
			return fmt.Errorf("of a guarantee of 4 MB/s there came %.2f", got[0]/1e6)
		}
		if got[1] < 4e5 || got[2] < 4e5 {
			return fmt.Errorf("the others have %.2f and %.2f MB/s", got[1]/1e6, got[2]/1e6)
		}
		return compare("all", got[0]+got[1]+got[2], limit, 0.08)
	})
	if n := f.nodes()["pid:"+pid(0)]; n.MinDownBytesPerSec != 4e6 {
		t.Errorf("a guarantee is shown as %+v", n)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	parts("the guaranteed one has ended", testbed.Now().Add(2*time.Second), 0.12, 0, 0.5, 0.5)
}

// A program uses little of its large part. The others get the rest at once.
func TestDownModest(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
	const limit = 8e6
	uid := spare + 54
	f.ports += 16
	a, at := f.reader(uid), f.ports+1
	f.ports += 16
	b, bt := f.reader(uid), f.ports+1
	f.must("set", "--user", itoa(uid), "--down", "8MB/s")
	f.must("set", "--pid", itoa(a.PID()), "--interactive")
	// The stream takes 0.2 of the limit.
	f.python(options{in: f.B}, `
s = connect(sys.argv[1])
say("ready")
at = time.monotonic()
while True:
    s.sendall(bytes(16000))
    at += 0.01
    time.sleep(max(at - time.monotonic(), 0))
`, fmt.Sprintf("%s:%d", f.A4, at)).read("ready")
	f.sendTo(bt, false, testbed.SenderConfig{Connections: 2})
	f.judge(testbed.Now().Add(1500*time.Millisecond), span, func(from, to testbed.Instant) error {
		f.until(to.Add(15 * time.Millisecond))
		little, rest := a.Goodput(at, from, to)*perByte, b.Goodput(bt, from, to)*perByte
		t.Logf("modest %.4f of the limit, the other %.4f", little/limit, rest/limit)
		if err := comparePart("modest", little, 1.6e6*perByte, 0.03); err != nil {
			return err
		}
		return compare("all", little+rest, limit, 0.08)
	})
}

// flooded starts a flood of datagrams to a program of a user, bytes/s, and waits until the queue exists.
func (f *inbound) flooded(uid uint32, perSec string) datagrams {
	f.t.Helper()
	receiver := strings.Replace(datagramReceiver, "SOL_SOCKET, 33,", "SOL_SOCKET, 8,", 1) // root alone may force a buffer
	flood := datagrams{f: f, headers: 28, rx: f.python(options{in: f.A, uid: uid}, receiver, "6001", "4")}
	flood.rx.read("ready")
	flood.tx = f.python(options{in: f.B}, datagramFlood, f.A4.String(), "6001", "1400", perSec)
	flood.tx.read("ready")
	f.receivesByQueue()
	return flood
}

// A flood of datagrams gets its program's part, by weight, of the traffic that a user receives, and the part that a
// TCP receiver leaves. Only a small part of the flood arrives. Alone the flood has the limit.
func TestDownSharesDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownModest and internal/clock TestShareByWeight")
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
	const limit = 4e6 // the path, the flood and its reader take a processor each
	uid := spare + 57
	f.ports += 16
	a, at := f.reader(uid), f.ports+1
	f.must("set", "--user", itoa(uid), "--down", "4MB/s")
	flood := f.flooded(uid, "8e6")
	// rates returns the rates of both, over the same two seconds.
	rates := func() (tcp, udp float64) {
		from := testbed.Now()
		udp, _ = flood.rate(2 * time.Second)
		to := testbed.Now()
		f.until(to.Add(15 * time.Millisecond))
		return a.Goodput(at, from, to) * perByte / limit, udp / limit
	}
	parts := func(what string, tcp, udp, tolerance float64) {
		t.Helper()
		for try := 1; ; try++ {
			gotTCP, gotUDP := rates()
			t.Logf("%s: TCP %.4f, datagrams %.4f, sum %.4f", what, gotTCP, gotUDP, gotTCP+gotUDP)
			err := compare(what+": TCP", gotTCP, tcp, tolerance/tcp)
			if err == nil {
				err = compare(what+": datagrams", gotUDP, udp, tolerance/udp)
			}
			if err == nil {
				return
			}
			if try == 4 || gotTCP+gotUDP > 1.02 {
				t.Error(err)
				return
			}
			t.Logf("measured again: %v", err)
		}
	}
	alone := func(what string) {
		t.Helper()
		udp := 0.0
		for try := 1; try < 5 && (udp < 0.97 || udp > 1.02); try++ { // Python is late on busy processors
			_, udp = rates()
			t.Logf("%s: datagrams %.4f", what, udp)
		}
		if udp < 0.9 || udp > 1.02 {
			t.Errorf("%s datagrams have %.3f of the limit", what, udp)
		}
	}
	alone("alone")
	x := f.sendTo(at, false, testbed.SenderConfig{Connections: 2})
	time.Sleep(5 * time.Second) // bbr starts low and takes that long
	parts("equal", 0.5, 0.5, 0.06)
	f.must("set", "--pid", itoa(a.PID()), "--weight", "300")
	time.Sleep(time.Second)
	parts("by weight", 0.75, 0.25, 0.06)
	flood.tx.close()
	flood.tx = f.python(options{in: f.B}, datagramFlood, f.A4.String(), "6001", "1400", "0.6e6")
	flood.tx.read("ready")
	time.Sleep(time.Second)
	parts("few", 0.8, 0.153, 0.06)
	if _, lost := flood.rate(time.Second); lost > 0.02 {
		t.Errorf("of few datagrams %.3f are lost", lost)
	}
	flood.tx.close()
	flood.tx = f.python(options{in: f.B}, datagramFlood, f.A4.String(), "6001", "1400", "8e6")
	flood.tx.read("ready")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	alone("alone again")
}

// Where TCP's least windows keep the queue long, datagrams beside them do not pay for that: it would not make the queue
// any shorter.
func TestDownDatagramsBesideLeastWindows(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownDatagramDelayBesideConnections; a queue that others keep long is tested here only")
	t.Parallel()
	spare := newUsers()
	f := newInbound(newStage(t), testutil.MustDistantPair(t, relay.RoundTrip(20*time.Millisecond)))
	const limit = 100e3
	uid := spare + 56
	f.ports += 16
	a, at := f.reader(uid), f.ports+1
	f.must("set", "--user", itoa(uid), "--down", "100kB/s")
	flood := f.flooded(uid, "0.2e6")
	f.sendTo(at, false, testbed.SenderConfig{Connections: 6})
	time.Sleep(6 * time.Second)
	from := testbed.Now()
	udp, _ := flood.rate(15 * time.Second)
	to := testbed.Now()
	f.until(to.Add(50 * time.Millisecond))
	t.Logf("TCP %.4f, datagrams %.4f of the limit", a.Goodput(at, from, to)*perByte/limit, udp/limit)
	if udp < 0.465*limit || udp > 0.55*limit {
		t.Errorf("datagrams have %.3f of the limit, want half", udp/limit)
	}
}
