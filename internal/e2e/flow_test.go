package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// newUsers returns the first of a hundred users. No machine has these users, no other test of this run, and no other
// run at the same time. Groups of 2^31 and above may make no sockets for pings (net.ipv4.ping_group_range).
func newUsers() uint32 {
	return 1_000_000_000 + 100_000*(uint32(os.Getpid())%11_000) + 100*users.Add(1)
}

var users atomic.Uint32 // hundreds of users handed out

// perByte is the number of bytes with IP and TCP headers for each byte of payload from A to B, where segments have
// 1448 bytes. Tests use it where only the payload is known.
const perByte = 1 + 52.0/1448

// field is a pair of namespaces with a meter on the egress of A and a receiver in B. Both count by port.
type field struct {
	*stage
	*testbed.Pair
	meter *testbed.Meter
	rx    *testbed.Receiver
	ports uint16 // handed out
}

// newField makes a field around a stage. Ports 5001..5016 read, and port 5050 answers requests of 600 bytes with
// 100.
func newField(s *stage) *field {
	s.t.Helper()
	f := &field{stage: s, Pair: testutil.MustPair(s.t), ports: testbed.DefaultPort - 1}
	cfg := testbed.ReceiverConfig{Interval: 10 * time.Millisecond}
	for i := range uint16(readers) {
		cfg.Ports = append(cfg.Ports, testbed.Port{Number: testbed.DefaultPort + i})
	}
	cfg.Ports = append(cfg.Ports, testbed.Port{Number: requestPort, RequestBytes: 600, ReplyBytes: 100})
	f.rx = f.receiver(f.B, cfg)
	f.startMeter()
	return f
}

// startMeter counts what leaves A, for an account at the test's end as well.
func (f *field) startMeter() {
	f.t.Helper()
	var err error
	if f.meter, err = testbed.StartMeter(f.A, testbed.Device, testbed.DefaultPort, requestPort-testbed.DefaultPort+1); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = f.meter.Close() })
	f.openAccount()
	f.t.Cleanup(f.settleAccount)
}

// senderCap is the rate of a sender without a limit, in bytes per second. freely is the least rate that a test
// measures of it. A machine can send thirty times as much, but that would take the processors from other tests.
const senderCap, freely = 100e6, 60e6

const (
	readers     = 16   // ports, from DefaultPort on
	requestPort = 5050 // the last on the meter
)

func (f *field) receiver(in *testbed.NetNS, cfg testbed.ReceiverConfig) *testbed.Receiver {
	f.t.Helper()
	rx, err := testbed.StartReceiver(in, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.stage != nil {
		begin := testbed.Now()
		f.account.adds(in, program{pid: rx.PID(), uid: cfg.UID, sends: func() bool { return rx.Goodput(0, begin, testbed.Now()) > 0 }})
	}
	f.t.Cleanup(func() { _ = rx.Close() })
	return rx
}

// flow is a sender and the port that it sends to.
type flow struct {
	*testbed.Sender
	f    *field
	port uint16
}

// sender starts a sending process in A that is not connected yet.
func (f *field) sender(cfg testbed.SenderConfig) *flow {
	f.t.Helper()
	f.ports++
	x := &flow{f: f, port: f.ports}
	switch {
	case cfg.Mode == testbed.Request:
		x.port = requestPort
		cfg.To = fmt.Sprintf("%s:%d", f.B4, x.port)
	case cfg.To == "":
		cfg.To = fmt.Sprintf("%s:%d", f.B4, x.port)
	case cfg.To == "6":
		cfg.To = fmt.Sprintf("[%s]:%d", f.B6, x.port)
	}
	x.Sender = f.startSender(f.A, cfg)
	return x
}

// startSender starts a sender that ends with the test. It sends up to `senderCap` if its configuration sets no other
// rate.
func (f *field) startSender(in *testbed.NetNS, cfg testbed.SenderConfig) *testbed.Sender {
	f.t.Helper()
	if cfg.UpToBytesPerSec == 0 {
		cfg.UpToBytesPerSec = senderCap
	}
	x, err := testbed.StartSender(in, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.account.adds(in, program{pid: x.PID(), uid: cfg.UID})
	f.t.Cleanup(func() {
		f.settleAccount()
		_ = x.Close()
	})
	return x
}

// send returns a sender that sends already.
func (f *field) send(cfg testbed.SenderConfig) *flow {
	f.t.Helper()
	x := f.sender(cfg)
	x.begin()
	return x
}

func (x *flow) begin() testbed.Instant {
	x.f.t.Helper()
	at, err := x.Start()
	if err != nil {
		x.f.t.Fatal(err)
	}
	return at
}

func (x *flow) pid() string { return itoa(x.PID()) }

// rate returns the rate at which IP bytes left A for the ports between two instants, per second. It waits until the
// span is over.
func (f *field) rate(from, to testbed.Instant, ports ...uint16) float64 {
	f.t.Helper()
	f.until(to)
	sum := 0.0
	for _, p := range ports {
		r, err := f.meter.Rate(p, from, to)
		if err != nil {
			f.t.Fatal(err)
		}
		sum += r
	}
	return sum
}

// reads says whether the receiver counts all of these ports, too.
func (f *field) reads(ports ...uint16) bool {
	for _, p := range ports {
		if p >= testbed.DefaultPort+readers && p != requestPort {
			return false
		}
	}
	return true
}

// arrived returns the rate at which payload arrived at ports in B, in bytes per second.
func (f *field) arrived(from, to testbed.Instant, ports ...uint16) float64 {
	f.until(to.Add(15 * time.Millisecond)) // one more sample has arrived after the span
	sum := 0.0
	for _, p := range ports {
		sum += f.rx.Goodput(p, from, to)
	}
	return sum
}

func (f *field) until(at testbed.Instant) {
	if left := at.Sub(testbed.Now()); left > 0 {
		time.Sleep(left)
	}
}

// settle is the time from a command to the first measurement of its new rate: netnice promises 100 ms, and the
// receiver counts every 10.
const settle = 150 * time.Millisecond

// recovery is the extra time that a flow of GB/s may need to reach its rate: it has lost segments before, and TCP
// notices that after a timeout of 200 ms.
const recovery = 100 * time.Millisecond

// span is the length of a measurement.
const span = 1500 * time.Millisecond

// relayStalled returns the time for which the path, if it is emulated, has stood still so far because no thread ran
// it.
func (f *field) relayStalled() time.Duration {
	if !f.distant() {
		return 0
	}
	a, _, err := f.Relay.Counters()
	if err != nil {
		return 0
	}
	return a.Stalled
}

// distant says whether a relay is between A and B.
func (f *field) distant() bool { return f.Pair != nil && f.Relay != nil }

// holdOffDaemonStarts keeps daemons from starting while a relay is measured, because a start makes the relay stand
// still.
func (f *field) holdOffDaemonStarts() (resume func()) {
	if !f.distant() {
		return func() {}
	}
	daemonStart.RLock()
	return daemonStart.RUnlock
}

// explain logs the egress of A between two instants in small steps. If a tool is available, it also logs the
// kernel's view of the connections.
func (f *field) explain(from, to testbed.Instant) {
	f.t.Helper()
	const bit = 50 * time.Millisecond
	for p := uint16(testbed.DefaultPort); p <= requestPort && f.meter != nil; p++ {
		var rates []string
		for at := from; at.Add(bit) <= to; at = at.Add(bit) {
			rates = append(rates, fmt.Sprintf("%.2f", f.rate(at, at.Add(bit), p)/1e6))
		}
		if slices.ContainsFunc(rates, func(r string) bool { return r != "0.00" }) {
			f.t.Logf("MB/s to port %d in each %v: %s", p, bit, strings.Join(rates, " "))
		}
	}
	if ss, err := exec.LookPath("ss"); err == nil {
		for name, ns := range map[string]*testbed.NetNS{"A": f.A, "B": f.B} {
			f.t.Logf("connections in %s:\n%.3000s", name, f.run(exec.Command(ss, "-tinmoOH"), ns).out)
		}
	}
}

// comparePart is compare for a part of a limit. A disturbance also excuses a larger part, because another program may not
// have used its own.
func comparePart(what string, got, want, tolerance float64) error {
	err := compare(what, got, want, tolerance)
	if errors.Is(err, errTooFast) {
		return errors.New(err.Error())
	}
	return err
}

// holds checks the rate of ports, together, for span after a command that returned at an instant.
func (f *field) holds(what string, after testbed.Instant, limit float64, ports ...uint16) {
	f.t.Helper()
	f.holdsFor(what, after, span, limit, 0.05, ports...)
}

// holdsFor is holds with another time than span, or with another tolerance.
func (f *field) holdsFor(what string, after testbed.Instant, length time.Duration, limit, tolerance float64, ports ...uint16) {
	f.t.Helper()
	f.judge(after, length, func(from, to testbed.Instant) error {
		first := f.chargesOf(limit)
		got := f.rate(from, to, ports...)
		f.t.Logf("%s: %.3f of %.0f bytes/s", what, got/limit, limit)
		if err := f.allCharged(first, f.chargesOf(limit), ports...); err != nil {
			f.t.Errorf("%s: %v", what, err)
		}
		err := compare(what, got, limit, tolerance)
		if err != nil && got <= limit && got >= limit*(1-tolerance-recovery.Seconds()/length.Seconds()) {
			f.t.Logf("%v: is it so after the start?", err)
			got = f.rate(to, to.Add(length), ports...)
			err = compare(what+" after the start", got, limit, tolerance)
			from, to = to, to.Add(length)
		}
		if err != nil || !f.reads(ports...) {
			return err
		}
		came := f.arrived(from, to, ports...)
		// A late receiver also counts data of before, and IPv6 has more headers, so an excess means nothing. A lack
		// means that data leave in vain.
		if came*perByte < limit*(1-tolerance-0.05) {
			return fmt.Errorf("%s: %.0f IP bytes/s leave, but only %.0f bytes/s of payload come", what, got, came)
		}
		return nil
	})
}

// near checks a rate that was measured otherwise, from an instant to now.
func (f *field) near(what string, since testbed.Instant, got, want, tolerance float64) {
	f.t.Helper()
	f.t.Logf("%s: %.3f of %.0f bytes/s", what, got/want, want)
	f.failUnlessDisturbed(since, got/want, compare(what, got, want, tolerance))
}

// nearShare is near for a part of a limit. Up to half as much more is no excess if another program lacked a
// processor to send.
func (f *field) nearShare(what string, since testbed.Instant, got, want, tolerance float64) {
	f.t.Helper()
	f.t.Logf("%s: %.3f of %.0f bytes/s", what, got/want, want)
	judge := compare
	if got < 1.5*want {
		judge = comparePart
	}
	f.failUnlessDisturbed(since, got/want, judge(what, got, want, tolerance))
}

// failUnlessDisturbed fails with err unless the machine has disturbed the measurement from an instant to now. A
// disturbance excuses no rate above a limit, and no rate below half of the expected one.
func (f *field) failUnlessDisturbed(since testbed.Instant, part float64, err error) {
	f.t.Helper()
	now := testbed.Now()
	switch excuse := cpus.excuse(since, now); {
	case err == nil:
	case excuse != "" && part >= 0.5 && !errors.Is(err, errTooFast):
		f.t.Logf("not judged: %v, but %s", err, excuse)
	default:
		f.t.Errorf("%v (%s; CPUs %.0f%% busy)", err, excuse, 100*cpus.busy(since, now))
	}
}

// free checks that ports, together, are far above a limit that was lifted.
func (f *field) free(what string, after testbed.Instant, above float64, ports ...uint16) {
	f.t.Helper()
	f.judge(after, 400*time.Millisecond, func(from, to testbed.Instant) error {
		got := f.arrived(from, to, ports...)
		f.t.Logf("%s: %.0f MB/s", what, got/1e6)
		if got < above {
			return fmt.Errorf("%s: %.0f bytes/s, want more than %.0f", what, got, above)
		}
		return nil
	})
}

// to returns the address of a port in B.
func (f *field) to(port uint16) string { return fmt.Sprintf("%s:%d", f.B4, port) }
