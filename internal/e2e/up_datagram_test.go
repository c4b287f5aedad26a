package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests of this file limit the egress of UDP and of other non-TCP protocols: `--up`.

// datagramFlood sends datagrams as fast as it may, or at a rate, and prints on request the payload that it has sent.
// The receiver prints the payload that it has received.
const (
	datagramFlood = `
host, port, size, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((host, port))
data, sent = bytes(size), 0

def flood():
    global sent
    begin = time.monotonic()
    while True:
        ahead = rate and sent / rate - (time.monotonic() - begin)
        if ahead > 0.001:
            time.sleep(ahead)
        try:
            s.send(data)
            sent += size
        except ConnectionRefusedError:
            pass

threading.Thread(target=flood, daemon=True).start()
say("ready")
while True:
    asked = wait()
    if asked == "ask":
        out = subprocess.run([sys.executable, "-c", sys.argv[5], host, sys.argv[6]], stdout=subprocess.PIPE, text=True).stdout
        say("trips", out.strip())
    elif asked == "many":
        say("pid", subprocess.Popen([sys.executable, "-c", sys.argv[5], host, sys.argv[6]]).pid)
    elif asked == "ping":
        out = subprocess.run(["ping", "-q", *sys.argv[5:], host], stdout=subprocess.PIPE, text=True).stdout
        say("pings", *(word for word in out.split() if word.isdigit()))
    else:
        say("got", sent, sent // size, time.monotonic())
`
	// Another program of the same tree asks questions and waits for the answers. It prints the round trips in ms, in
	// ascending order.
	datagramAsk = `
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(8)
trips = []
end = time.monotonic() + 5
while len(trips) < 40 and time.monotonic() < end:
    begin = time.monotonic()
    s.sendto(bytes(60), (sys.argv[1], int(sys.argv[2])))
    try:
        s.recv(100)
    except TimeoutError:
        pass
    trips.append((time.monotonic() - begin) * 1e3)
    time.sleep(0.03)
print(*("%.3f" % t for t in sorted(trips)))
`
	// Another program floods by eight sockets, in smaller datagrams, for a while.
	datagramMany = `
import socket, sys, threading, time
end = time.monotonic() + 14

def flood():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((sys.argv[1], int(sys.argv[2])))
    while time.monotonic() < end:
        s.send(bytes(700))

for _ in range(8):
    threading.Thread(target=flood).start()
`
	datagramEcho = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", int(sys.argv[1])))
say("ready")
while True:
    s.sendto(*s.recvfrom(100))
`
)

// datagrams is a sender, and a receiver that counts the datagrams.
type datagrams struct {
	f       *inbound
	tx, rx  *script
	headers float64
}

// datagramsTo starts a sender in A, with a command before it and more arguments, and a receiver in B.
func (f *inbound) datagramsTo(port int, size int, rate float64, v6 bool, more []string, under ...string) datagrams {
	f.t.Helper()
	family, host, headers := "4", f.B4.String(), 28.0
	if v6 {
		family, host, headers = "6", f.B6.String(), 48
	}
	if size > 1472 { // three fragments
		headers += 40
	}
	d := datagrams{f: f, headers: headers}
	d.rx = f.python(options{in: f.B}, datagramReceiver, strconv.Itoa(port), family)
	d.rx.read("ready")
	d.tx = f.python(options{in: f.A, under: under}, datagramFlood,
		append([]string{host, strconv.Itoa(port), strconv.Itoa(size), fmt.Sprint(rate)}, more...)...)
	d.tx.read("ready")
	return d
}

func (d datagrams) ask(a *script) (bytes, at float64) {
	d.f.t.Helper()
	var payload, count float64
	a.tell("how much")
	if _, err := fmt.Sscan(a.read("got"), &payload, &count, &at); err != nil {
		d.f.t.Fatal(err)
	}
	return payload + count*d.headers, at
}

// rate returns the arrived IP bytes per second, and the part of the sent bytes that did not arrive.
func (d datagrams) rate(over time.Duration) (perSec, lost float64) {
	d.f.t.Helper()
	sent, sentFrom := d.ask(d.tx)
	before, from := d.ask(d.rx)
	time.Sleep(over)
	sentThen, sentTo := d.ask(d.tx)
	after, to := d.ask(d.rx)
	if to <= from || sentTo <= sentFrom {
		return 0, 1 // no datagram arrived
	}
	// Each program has its own time: on a busy machine one answers long after the other.
	perSec = (after - before) / (to - from)
	return perSec, 1 - perSec*(sentTo-sentFrom)/(sentThen-sent)
}

// queued waits until the queue for non-TCP egress exists.
func (f *inbound) queued() {
	f.t.Helper()
	f.assertWithin("a queue", 30*time.Second, func() bool {
		return slices.ContainsFunc(f.status().Programs, func(p api.Program) bool { return p.Name == "send_out" && p.Attached })
	})
}

const upTolerance = 0.02

// One sender is limited as it runs, and one begins under a limit: both wait, and no datagram is lost.
func TestUpUDP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size   int
		v6     bool
		before bool // the socket exists before the limit
	}{{1400, false, true}, {1400, true, false}} {
		t.Run(fmt.Sprintf("%d/v6=%t", c.size, c.v6), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			before := f.devices()
			const limit = 1e6
			var under []string
			if !c.before {
				under = []string{netniceBinary, "run", "--up", "1MB/s", "--"}
			}
			f.startMeter()
			d := f.datagramsTo(6001, c.size, 0, c.v6, nil, under...)
			if c.before {
				f.must("set", "--pid", d.tx.pid(), "--up", "1MB/s")
			}
			f.queued()
			time.Sleep(1500 * time.Millisecond)
			begin := testbed.Now()
			got, lost := d.rate(3 * time.Second)
			t.Logf("%.4f of the limit, %.4f lost", got/limit, lost)
			f.near("datagrams", begin, got, limit, upTolerance)
			if lost > 0.05 { // datagrams on the way
				t.Errorf("%.3f of what was sent did not come", lost)
			}
			charged := f.charged("pid:"+d.tx.pid(), time.Second)
			f.near("charged", begin, charged, limit, 0.05)
			f.must("unset", "--pid", d.tx.pid())
			if free, _ := d.rate(500 * time.Millisecond); free < 3*limit {
				t.Errorf("%.0f bytes/s after the limit was lifted", free)
			}
			if got := f.devices(); got != before {
				t.Errorf("devices were\n%s\nand are\n%s", before, got)
			}
		})
	}
}

// The machine's datagrams to itself are free unless --loopback limits them. They have no queue, so netnice drops the
// excess.
func TestUpUDPLoopback(t *testing.T) {
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	d := datagrams{f: f, headers: 28}
	d.rx = f.python(options{in: f.A}, datagramReceiver, "6001", "4")
	d.rx.read("ready")
	d.tx = f.python(options{in: f.A}, datagramFlood, "127.0.0.1", "6001", "1400", "3e6")
	d.tx.read("ready")
	f.must("set", "--pid", d.tx.pid(), "--up", "1MB/s")
	begin := testbed.Now()
	free, _ := d.rate(time.Second)
	f.near("to itself", begin, free, 3e6*1428/1400, 0.1)
	f.must("set", "--pid", d.tx.pid(), "--up", "1MB/s", "--loopback")
	time.Sleep(500 * time.Millisecond)
	begin = testbed.Now()
	held, _ := d.rate(3 * time.Second)
	f.near("to itself, limited", begin, held, 1e6, 0.04) // a late sender may make up for 50 ms
	if n := f.nodes()["pid:"+d.tx.pid()]; n.Up.Dropped == 0 || n.Up.DroppedFor.NoQueue != n.Up.Dropped {
		t.Errorf("what has no queue is not counted as dropped for that: %+v", n)
	}
}

// iperf3 sends at its configured rate, whether the receiver acknowledges the data or not.
func TestUpIperf(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and TestIperf")
	t.Parallel()
	iperf, err := exec.LookPath("iperf3")
	if err != nil {
		t.Skip("iperf3 is not installed")
	}
	f := newInbound(newStage(t), testutil.MustPair(t))
	server := exec.Command(iperf, "-s", "-1", "--forceflush")
	if err := f.start(server, f.B); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	time.Sleep(300 * time.Millisecond)
	cmd := f.command("run", "--up", "1MB/s", "--", iperf, "-c", f.B4.String(), "-u", "-b", "24M", "-l", "1400", "-t", "4", "-O", "2", "-f", "K")
	begin := testbed.Now()
	r := f.run(cmd, f.A)
	if r.code != 0 {
		t.Fatal(r)
	}
	for _, line := range strings.Split(r.out, "\n") {
		if !strings.HasSuffix(strings.TrimSpace(line), "receiver") {
			continue
		}
		t.Log(line)
		fields := strings.Fields(line)
		for i, word := range fields {
			if word != "KBytes/sec" {
				continue
			}
			got, err := strconv.ParseFloat(fields[i-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			f.near("iperf3", begin, got*1024*1428/1400, 1e6, 0.04)
			return
		}
	}
	t.Errorf("iperf3 says:\n%s", r.out)
}

// A ping gets its answer while the same program sends a flood of datagrams. A flood of pings does not
// evade the limit.
func TestUpPing(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ping"); err != nil {
		t.Skip("ping is not installed")
	}
	f := newInbound(newStage(t), testutil.MustPair(t))
	pings := func(port int, rate float64, args ...string) (sent, answered float64) {
		d := f.datagramsTo(port, 1400, rate, false, args, netniceBinary, "run", "--up", "200KB/s", "--")
		if rate == 0 {
			f.queued()
		}
		d.tx.tell("ping")
		if _, err := fmt.Sscan(d.tx.read("pings"), &sent, &answered); err != nil {
			t.Fatal(err)
		}
		return sent, answered
	}
	if sent, answered := pings(6001, 0, "-c", "10", "-i", "0.2", "-W", "1"); sent != 10 || answered < sent {
		t.Errorf("%.0f of %.0f pings were answered", answered, sent)
	}
	begin := testbed.Now()
	sent, _ := pings(6002, 1000, "-f", "-w", "3", "-s", "1400")
	t.Logf("a flood of pings: %.3f of the limit", sent*1428/3/200e3)
	// On a busy machine ping ends later than after 3 s.
	if rate := sent * 1428 / 3; rate > 200e3*1.5 || rate > 200e3*1.2 && !excused(t, begin, testbed.Now()) {
		t.Errorf("a flood of pings was sent at %.0f bytes/s", sent*1428/3)
	}
}

// QUIC's own congestion control finds the limit.
func TestUpQUIC(t *testing.T) {
	t.Parallel()
	w := newSite(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := func(role string, args ...string) []string {
		return append([]string{self}, agentArgs(role, args...)[1:]...)
	}
	address := fmt.Sprintf("%s:4433", w.A4)
	server := append([]string{netniceBinary, "run", "--up", fmt.Sprintf("%.0fB/s", fetchLimit), "--"},
		agent(agentQUICServer, address, filepath.Join(w.dir, "data"))...)
	w.script(options{in: w.A}, server...).read("ready")
	out := filepath.Join(w.dir, "out")
	begin := testbed.Now()
	client := agent(agentQUICClient, address, out)
	r := w.run(exec.Command(client[0], client[1:]...), w.B)
	if r.code != 0 {
		t.Fatal(r)
	}
	w.same(out)
	// Datagrams have 1,252 to 1,452 bytes, of which 28 are headers and some 25 are QUIC's own.
	took, want := r.at.Sub(begin), time.Duration(fetched*1.04/fetchLimit*1e9)
	t.Logf("%v, at the limit %v", took.Round(time.Millisecond), want.Round(time.Millisecond))
	if took < want*90/100 || took > want*130/100+700*time.Millisecond && !excused(t, begin, r.at) {
		t.Errorf("%d bytes took %v, at the limit %v", fetched, took, want)
	}
}

// Beside a flood of one program another one, under the same limit, asks questions and gets answers at once.
func TestUpUDPBeside(t *testing.T) {
	t.Parallel()
	for _, limit := range testutil.Subset([]float64{64e3, 1e6}, 0) {
		t.Run(fmt.Sprintf("%.0f", limit), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			f.python(options{in: f.B}, datagramEcho, "6002").read("ready")
			d := f.datagramsTo(6001, 1400, 0, false, []string{datagramAsk, "6002"},
				netniceBinary, "run", "--up", fmt.Sprintf("%.0fB/s", limit), "--")
			f.queued()
			time.Sleep(1500 * time.Millisecond)
			begin := testbed.Now()
			d.tx.tell("ask")
			before, from := d.ask(d.rx)
			time.Sleep(3 * time.Second)
			after, to := d.ask(d.rx)
			got := (after - before) / (to - from)
			trips := strings.Fields(d.tx.read("trips"))
			t.Logf("%.4f of the limit; %d answers, after %s ms (least), %s (median), %s (most)", got/limit, len(trips), trips[0], trips[len(trips)/2], trips[len(trips)-1])
			f.near("flood", begin, got, limit*(1-0.03*64e3/limit), upTolerance+0.02*64e3/limit) // and the questions
			median, err := strconv.ParseFloat(trips[len(trips)/2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if median > 10 && !excused(t, begin, testbed.Now()) {
				t.Errorf("an answer beside a flood took %.1f ms", median)
			}
		})
	}
}

// Two programs under one limit send as much as they may, one by a socket, one by eight. Each gets half, or a part by
// its weight.
func TestUpUDPShared(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDPBeside and internal/clock TestShareByWeight")
	t.Parallel()
	f := newInbound(newStage(t), testutil.MustPair(t))
	const limit = 1e6
	d := f.datagramsTo(6001, 1400, 0, false, []string{datagramMany, "6002"}, netniceBinary, "run", "--up", "1MB/s", "--")
	other := datagrams{f: f, headers: 28}
	other.rx = f.python(options{in: f.B}, datagramReceiver, "6002", "4")
	other.rx.read("ready")
	f.queued()
	d.tx.tell("many")
	pid := strings.TrimSpace(d.tx.read("pid"))
	shares := func(what string, settle time.Duration, want float64) {
		t.Helper()
		time.Sleep(settle)
		begin := testbed.Now()
		one, from := d.ask(d.rx)
		eight, eightFrom := other.ask(other.rx)
		time.Sleep(2500 * time.Millisecond)
		oneThen, to := d.ask(d.rx)
		eightThen, eightTo := other.ask(other.rx)
		one, eight = (oneThen-one)/(to-from), (eightThen-eight)/(eightTo-eightFrom)
		t.Logf("%s: one socket %.4f, eight %.4f of the limit", what, one/limit, eight/limit)
		f.near(what+", both", begin, one+eight, limit, upTolerance)
		f.nearShare(what+", one socket", begin, one, want*limit, 0.1)
	}
	shares("equal", 1500*time.Millisecond, 0.5)
	f.must("set", "--pid", pid, "--up", "100MB/s", "--weight", "300")
	shares("by weight", 4*time.Second, 0.25) // the backlog leaves first
}
