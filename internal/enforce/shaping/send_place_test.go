package shaping

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/due"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// lived starts a process in a network namespace. The process lives until the caller calls end.
func lived(t *testing.T, n *testbed.NetNS) (end func()) {
	t.Helper()
	rx, err := testbed.StartReceiver(n, testbed.ReceiverConfig{})
	must(t, err)
	t.Cleanup(func() { _ = rx.Close() })
	return func() { _ = rx.Close() }
}

// floodIn floods from another network namespace by a socket of this process, until the caller calls stop.
func floodIn(t *testing.T, from *testbed.NetNS, to *net.UDPAddr) (stop func()) {
	t.Helper()
	c := dial(t, from, "udp", to.String())
	go func() {
		for buf := make([]byte, 1400); ; {
			if _, err := c.Write(buf); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	return func() { _ = c.Close() }
}

// sinkHere counts the payload that arrives at a socket of the test's namespace.
func sinkHere(t *testing.T, address string) (*net.UDPAddr, *atomic.Int64) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	return c.LocalAddr().(*net.UDPAddr), count(c)
}

// queuedIn waits until a network namespace has a queue for non-TCP egress.
func queuedIn(t *testing.T, n *testbed.NetNS, free []string) {
	t.Helper()
	for begin := time.Now(); len(devicesIn(t, n)) <= len(free)+2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > patient(20*time.Second) {
			t.Fatal("no queue")
		}
	}
}

// near measures a rate. A rate that is too low is measured again, since the machine may be busy with something else; no
// rate may be too high.
func near(t *testing.T, what string, want, within float64, measure func() float64) {
	t.Helper()
	below := within
	if os.Getenv("NETNICE_VM") != "" {
		below = 0.7 // emulated machines are slow
	}
	for try := 0; ; try++ {
		got := measure()
		t.Logf("%s: %.4f of the limit", what, got/want)
		if got <= want*(1+within) && got >= want*(1-below) {
			return
		}
		if try == 3 || got > want*(1+within) {
			t.Errorf("%s: %.0f bytes/s, want %.0f", what, got, want)
			return
		}
		t.Log("measured again: the rate was too low")
	}
}

const perDatagram = 1 + udpHeaders4/1400.0

// TestSentElsewhere checks egress in another network namespace than the daemon's. The limit holds, senders wait, and
// another daemon takes the queue over. Nothing stays when nobody sends there any more.
func TestSentElsewhere(t *testing.T) {
	const limit = 1e6
	far := elsewhere(t)
	before, there := devices(t), devicesIn(t, far)
	end := lived(t, far)
	to, got := sinkHere(t, ours4)
	arrives := func() float64 { return rate(got, time.Second) * perDatagram }
	k := opened(t)
	must(t, k.SetNode(sending(limit)))
	stop := floodIn(t, far, to)
	queuedIn(t, far, there)
	time.Sleep(time.Second)
	near(t, "limited", limit, tolerance(0.03), arrives)
	waits(t, far, to)
	counters, err := k.Counters()
	must(t, err)
	for name, n := range counters {
		if n > 0 {
			t.Errorf("fault %s: %d", name, n)
		}
	}
	if stats, _, err := k.Look(7); err != nil || stats.Datagrams.QueuedBytes == 0 {
		t.Errorf("nothing waits: %+v, %v", stats, err)
	}
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("devices here were %q and are %q", before, now)
	}
	made := devicesIn(t, far)
	must(t, k.Close())
	near(t, "nobody looks after it", limit, tolerance(0.05), arrives)
	k, err = Open(options())
	must(t, err)
	if now := devicesIn(t, far); !slices.Equal(now, made) {
		t.Errorf("devices there were %q and are %q", made, now)
	}
	time.Sleep(time.Second)
	near(t, "taken over", limit, tolerance(0.03), arrives)
	// The last process in the namespace ends.
	stop()
	end()
	time.Sleep(sendLeft + 200*time.Millisecond)
	must(t, k.Maintain())
	if now := devicesIn(t, far); !slices.Equal(now, there) {
		t.Errorf("devices there were %q and are %q", there, now)
	}
	if pins, _ := filepath.Glob(options().PinDir + "/link_egress_device_*"); len(pins) > 0 {
		t.Errorf("programs are attached still: %q", pins)
	}
	// Another process comes to live there.
	lived(t, far)
	floodIn(t, far, to)
	queuedIn(t, far, there)
	must(t, k.Down())
	if now, nowThere := devices(t), devicesIn(t, far); !slices.Equal(now, before) || !slices.Equal(nowThere, there) {
		t.Errorf("devices were %q, there %q, and are %q, %q", before, there, now, nowThere)
	}
}

// waits checks that a sender waits beside a flood in a network namespace, or gets EAGAIN while its socket is
// non-blocking.
func waits(t *testing.T, from *testbed.NetNS, to *net.UDPAddr) {
	t.Helper()
	var fd int
	must(t, from.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	defer unix.Close(fd)
	address := &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}
	buf := make([]byte, 1000)
	again := refused(t, fd, buf, address)
	begin := time.Now()
	for range 200 {
		must(t, unix.Sendto(fd, buf, 0, address))
	}
	took := time.Since(begin)
	t.Logf("%d of 2000 calls refused; 200 calls that wait took %v", again, took)
	if took < 150*time.Millisecond {
		t.Errorf("200 datagrams of 1000 bytes were sent in %v", took)
	}
}

// TestSentInTwoPlaces checks one limit for the egress of a process in two network namespaces together. One namespace
// gets what the other leaves.
func TestSentInTwoPlaces(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSentElsewhere and TestNamespaceShare")
	const limit = 2e6
	far := elsewhere(t)
	before, there := devices(t), devicesIn(t, far)
	lived(t, far)
	k := opened(t)
	defer func() {
		must(t, k.Down())
		if now, nowThere := devices(t), devicesIn(t, far); !slices.Equal(now, before) || !slices.Equal(nowThere, there) {
			t.Errorf("devices were %q, there %q, and are %q, %q", before, there, now, nowThere)
		}
	}()
	must(t, k.SetNode(sending(limit)))
	toFar, gotFar := sink(t, far, theirs4)
	toHere, gotHere := sinkHere(t, ours4)
	stop := floodIn(t, far, toHere)
	_, _ = flood(t, toFar, 1400, 0)
	queuedIn(t, far, there)
	settled(t, k)
	time.Sleep(time.Second)
	var here, other float64
	both := func() float64 {
		begin, f, h := time.Now(), gotFar.Load(), gotHere.Load()
		time.Sleep(1500 * time.Millisecond)
		span := time.Since(begin).Seconds() / perDatagram
		here, other = float64(gotFar.Load()-f)/span, float64(gotHere.Load()-h)/span
		return here + other
	}
	near(t, "both", limit, tolerance(0.02), both)
	if least := min(here, other); least < 0.4*(here+other) {
		t.Errorf("%.0f and %.0f bytes/s", here, other)
	}
	// Now a slow sender sends beside a flood.
	stop()
	soon(t, "nothing waits of a flood that has ended", time.Second, func() bool { return counted(t, k, far) == 0 })
	loses(t, k, far)
	slow := dial(t, far, "udp", toHere.String())
	go func() {
		for buf := make([]byte, 1400); ; time.Sleep(7 * time.Millisecond) { // 0.2 MB/s
			if _, err := slow.Write(buf); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	time.Sleep(time.Second)
	near(t, "beside a slow one", limit, tolerance(0.03), both)
	if other > 0.15*limit || other < 0.02*limit {
		t.Errorf("the slow one got %.0f bytes/s", other)
	}
}

// numberOf returns the number by which the kernel side knows a network namespace.
func numberOf(t *testing.T, n *testbed.NetNS) (ns uint32) {
	t.Helper()
	must(t, n.Do(func() (err error) {
		ns, err = netnamespace.Of("thread-self")
		return err
	}))
	return ns
}

// loses makes a packet seem lost on its way through the queue, in a network namespace in which nothing is sent just
// now.
func loses(t *testing.T, k *Kernel, in *testbed.NetNS) {
	t.Helper()
	key := bpf.OutflowKey{Netns: numberOf(t, in), Node: 7}
	k.mu.Lock()
	defer k.mu.Unlock()
	var f bpf.Outflow
	must(t, k.send.obj.Outflows.Lookup(key, &f))
	for i := range f.Lane {
		if f.Lane[i].CameBytes != 0 {
			f.Lane[i].CameBytes += 1428
		}
	}
	must(t, k.send.obj.Outflows.Put(key, f))
}

// counted returns the backlog in a network namespace by the counters of the per-program classes. Shares depend on
// these.
func counted(t *testing.T, k *Kernel, in *testbed.NetNS) (bytes int64) {
	t.Helper()
	ns := numberOf(t, in)
	k.mu.Lock()
	defer k.mu.Unlock()
	var f bpf.Outflow
	must(t, k.send.obj.Outflows.Lookup(bpf.OutflowKey{Netns: ns, Node: 7}, &f))
	for _, l := range f.Lane {
		bytes += int64(l.CameBytes - l.LeftBytes)
	}
	return bytes
}

// TestNamespaceShare checks how the rate that is due to a program is divided. Where the program wants less, it leaves
// the rest to where it wants more.
func TestNamespaceShare(t *testing.T) {
	const whole = 1000
	for _, c := range []struct {
		waits, sends []float64 // rates of the classes that have a backlog, and of the others
		want         float64
	}{
		{[]float64{400}, nil, whole},
		{[]float64{400, 400}, nil, whole / 2},
		{[]float64{400}, []float64{100}, 900},
		{[]float64{400}, []float64{600, 0}, 400},
		{[]float64{390, 380}, []float64{200, 0}, 400},
		{nil, []float64{100, 100}, whole},
	} {
		var parts []*part
		for _, sent := range c.waits {
			parts = append(parts, &part{sent: sent, waits: true})
		}
		for _, sent := range c.sends {
			parts = append(parts, &part{sent: sent})
		}
		if got := namespaceShare(whole, parts); got != c.want {
			t.Errorf("%v: %v, want %v", c, got, c.want)
		}
	}
	p, now := part{}, time.Now()
	for i := range uint64(20) {
		p.see(bpf.Lane{Child: 5, CameBytes: 1e6 + i*40000, LeftBytes: i * 40000}, 1, now.Add(time.Duration(i)*due.Look), 0)
	}
	if !p.waits || p.sent < 390_000 || p.sent > 400_000 || p.wants < 1e7 {
		t.Errorf("of what sends 400,000 bytes/s and waits is seen: %+v", p)
	}
	p.lost = 1e6 // a backlog that never was in the queue
	if p.see(bpf.Lane{Child: 5, CameBytes: 2e6, LeftBytes: 1e6}, 1, now.Add(20*due.Look), 0); p.waits || p.waiting != 0 {
		t.Errorf("of what was lost is seen: %+v", p)
	}
	if p.see(bpf.Lane{Child: 5, CameBytes: 2e6, LeftBytes: 2e6}, 1, now.Add(21*due.Look), 0); p.lost != 0 {
		t.Errorf("what was not lost after all: %+v", p)
	}
	for i := range uint64(20) {
		p.see(bpf.Lane{Child: 6, CameBytes: 1500 + i*1000, LeftBytes: i * 1000}, 3, now.Add(time.Duration(i)*due.Look), 0)
	}
	if !p.waits || p.wants < 3*34_000 || p.wants > 3*36_000 { // twice 10,000 bytes/s, and 1,500 bytes per sample, three times that on the line
		t.Errorf("of what sends 10,000 bytes/s by the queue is seen: %+v", p)
	}
}

// TestLaneRates checks that the rate of a class is what its waiting programs are due, and what the others send.
func TestLaneRates(t *testing.T) {
	const limit = 1000
	rates := map[uint64]float64{1: 300, 2: 300, 3: 300}
	for _, c := range []struct {
		parts []part
		want  uint64
	}{
		{[]part{{child: 1, waits: true, wants: 900}, {child: 2, waits: true, wants: 300}}, 600},
		{[]part{{child: 1, waits: true, wants: 900}, {child: 2, waits: true, wants: 50}}, 350}, // the rest of child 2 passes beside the queue
		{[]part{{child: 1, waits: true, wants: 900}, {child: 2, sent: 100}}, 400},
		{[]part{{child: 1, waits: true, wants: 900}, {child: 2, sent: 100, quiet: shareQuiet + 1}}, 300},
		{[]part{{child: 1, sent: 10}, {child: 2, sent: 10}, {child: 3, sent: 10}}, 900},
		{nil, limit},
	} {
		var o outlet
		copy(o.part[:], c.parts)
		if got := o.due(rates, limit); got != c.want {
			t.Errorf("%+v: %d, want %d", c.parts, got, c.want)
		}
	}
}
