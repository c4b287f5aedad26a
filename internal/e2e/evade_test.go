package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The tests in evade_*_test.go are programs that try to send faster than their limit. A counter at the receiver's
// device counts arriving packets. Thus headers, handshakes and packets that never reach a socket count too.

// evadeLimit is the limit of the trees in these tests, bytes/s.
const evadeLimit = 3e6

// These are times by which traffic may precede its departure time. They are the credit for idle time, and the lead
// of a new connection (see ForgottenConnections).
const (
	evadeBurst = 10 * time.Millisecond
	evadeEarly = 100 * time.Millisecond
	// evadeForgotten is the lead of all connections together that the program closes at once.
	evadeForgotten = 300 * time.Millisecond
)

// escape is a way in which a program tries to evade its limit.
type escape struct {
	name string
	// text is a Python program. It says "ready", with the pid of the process to limit if that is another one, and
	// waits for its limit. Then it says "going" and goes on for at least three seconds. sys.argv[1] is the IPv4
	// destination and sys.argv[2] the IPv6 destination.
	text    string
	least   float64       // part of the limit that has to arrive for the attempt to count
	ahead   time.Duration // lead, as time at the limit's rate: connections that are closed at once
	over    float64       // part of the limit that may arrive in addition: headers are not known exactly
	open    bool          // an evasion that the man page names
	against string        // a program in B that runs meanwhile; argv[1] is the address of A
	args    []string
	subject string  // a subject whose counter has to match the arrived bytes
	bursts  float64 // bytes that may arrive at once, all connections together
	counted string  // a counter of A's TCP that has to grow for the attempt to count

	// privileged says why the program has to be root's. Any other program has a user of its own, who has no other
	// process and no capabilities.
	privileged string
	uid        uint32    // the user of the program; 0 = a new one
	cgroup     string    // folder that the program starts in
	limits     []limited // Each of these is limited in an attempt of its own; nil stands for the process.
}

// limited is what the limit of an attempt is on.
type limited string

const (
	limitedProcess    limited = "process"
	limitedUser       limited = "user"
	limitedCgroup     limited = "cgroup"
	limitedUserBoth   limited = "user, in both directions together"
	limitedCgroupBoth limited = "cgroup, in both directions together"
)

// limit returns the words of a command that sets such a limit in bytes per second, and its subject.
func (l limited) limit(root string, uid uint32, group string, bytesPerSec float64) (args []string, subject string) {
	rate := fmt.Sprintf("%.0fB/s", bytesPerSec)
	switch l {
	case limitedUser:
		return []string{"--user", itoa(uid), "--up", rate}, "user:" + itoa(uid)
	case limitedUserBoth:
		return []string{"--user", itoa(uid), "--total", rate}, "user:" + itoa(uid)
	case limitedCgroup:
		return []string{"--cgroup", group, "--up", rate}, "cgroup:" + group
	case limitedCgroupBoth:
		return []string{"--cgroup", group, "--total", rate}, "cgroup:" + group
	default:
		return []string{"--pid", root, "--up", rate}, "pid:" + root
	}
}

// attempts returns an escape for each of its limits, under names of their own.
func (e escape) attempts() (all []escape) {
	for _, l := range e.limits {
		one := e
		one.limits = []limited{l}
		if l != limitedProcess {
			one.name += ", limit on the " + string(l)
		}
		all = append(all, one)
	}
	if all == nil {
		e.limits = []limited{limitedProcess}
		all = []escape{e}
	}
	return all
}

// evade runs these attempts one after the other, each limited to evadeLimit. In `make test` it runs every third of
// them.
func evade(t *testing.T, set func(f *field), escapes []escape) {
	t.Parallel()
	s := upStage(t)
	f := newField(s)
	f.segmented()
	if set != nil {
		set(f)
	}
	var attempts []escape
	for _, e := range escapes {
		attempts = append(attempts, e.attempts()...)
	}
	var thirds []int
	for i := 0; i < len(attempts); i += 3 {
		thirds = append(thirds, i)
	}
	for _, e := range testutil.Subset(attempts, thirds...) {
		t.Run(e.name, func(t *testing.T) {
			sub := *f // fails, and cleans up, by itself
			stage := &stage{t: t, mounts: s.mounts}
			sub.stage = stage
			sub.openAccount()
			sub.evade(e)
		})
	}
}

// evade runs one attempt, whose first limit counts.
func (f *field) evade(e escape) {
	f.t.Helper()
	const port uint16 = testbed.DefaultPort
	o := options{in: f.A, cgroup: e.cgroup, uid: e.uid}
	if e.privileged != "" {
		f.t.Log("as root: " + e.privileged)
	} else if o.uid == 0 {
		o.uid = newUsers()
	}
	on, group := limitedProcess, ""
	if len(e.limits) > 0 {
		on = e.limits[0]
	}
	if on == limitedCgroup || on == limitedCgroupBoth {
		o.cgroup, group = cgroup(f.t, "evade")
	}
	args := append([]string{f.to(port), fmt.Sprintf("[%s]:%d", f.B6, port)}, e.args...)
	x := f.python(o, evader+e.text, args...)
	root := x.read("ready")
	if root == "" {
		root = x.pid()
	}
	limit, subject := on.limit(root, o.uid, group, evadeLimit)
	f.must(append([]string{"set"}, limit...)...)
	defer f.quiet()
	defer func() { _ = f.netnice(append([]string{"unset"}, limit[:2]...)...) }() // it may have ended with its last process already
	begin := f.wire()
	x.tell("go")
	x.read("going")
	if e.against != "" {
		y := f.python(options{in: f.B}, e.against, f.A4.String()+":8080")
		defer y.close()
	}
	defer x.close()
	e.subject = subject
	f.contained(e, begin, evadeLimit)
	if e.open {
		f.account.giveUp("the man page names this way out")
	}
	f.settleAccount()
	if e.counted != "" && f.tcpCounter(e.counted) == 0 {
		f.t.Errorf("%s is 0: nothing was tried", e.counted)
	}
}

// tcpCounter returns one of A's counters in the file netstat.
func (f *field) tcpCounter(name string) (n uint64) {
	f.t.Helper()
	err := f.A.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		lines := strings.Split(string(text), "\n")
		if err != nil || len(lines) < 2 {
			return fmt.Errorf("read netstat: %w", err)
		}
		n, err = strconv.ParseUint(words(lines[1])[slices.Index(words(lines[0]), name)], 10, 64)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// quiet waits until the backlog of closed connections has arrived.
func (f *field) quiet() {
	f.t.Helper()
	closing := map[string]bool{"04": true, "09": true, "0B": true} // FIN_WAIT1, LAST_ACK, CLOSING
	if !eventually(10*time.Second, func() bool {
		var table []byte
		err := f.A.Do(func() error {
			v4, err := os.ReadFile("/proc/thread-self/net/tcp")
			v6, err6 := os.ReadFile("/proc/thread-self/net/tcp6")
			table = slices.Concat(v4, v6)
			return errors.Join(err, err6)
		})
		if err != nil {
			f.t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			w := words(line)
			if len(w) < 10 {
				continue
			}
			// A subflow of a closed MPTCP socket stays established while it sends.
			if queue, _, _ := strings.Cut(w[4], ":"); closing[w[3]] || w[9] == "0" && strings.Trim(queue, "0") != "" {
				return false
			}
		}
		return true
	}) {
		f.t.Error("connections of programs that have ended go on sending")
	}
}

// contained checks the bytes on the wire in the next seconds against a limit: all of them, and two seconds without
// the start.
func (f *field) contained(e escape, begin wired, limit float64) {
	f.t.Helper()
	time.Sleep(2 * settle)
	m := f.charging(e.subject, limit, 20)
	settled, end := m.begin, m.end
	rate, packets := end.since(settled)
	f.t.Logf("%.3f of the limit in %.0f packets/s", rate/limit, packets)
	if m.there && !e.open {
		f.t.Log(m)
		// The slack covers chunks at their departure time, a hundredth of a second, and handshakes. The kernel sends
		// some handshakes without the socket.
		slack := (0.02*limit + 64*packets + e.bursts/2) * end.at.Sub(settled.at).Seconds()
		if err := m.agrees(slack, slack); err != nil {
			f.t.Error(err)
		}
	}
	limit *= 1 + e.over
	err := errors.Join(end.inBudget(settled, limit, evadeBurst+e.ahead), end.inBudget(begin, limit, evadeBurst+evadeEarly+e.ahead))
	switch {
	case e.open && err == nil:
		f.t.Error("this is no way around a limit any more: the man page names it")
	case !e.open && err != nil:
		f.t.Errorf("%v\neach 100 ms: %s\ncharged: %s", err, m.each, f.netnice("ls", "--json").out)
	}
	least := e.least
	if least == 0 {
		least = 0.9
	}
	// Data that left early are missing later.
	all, _ := end.since(begin)
	excuse := cpus.excuse(settled.at, end.at)
	switch {
	case max(rate, all) >= least*limit:
	case excuse != "" && max(rate, all) >= leastEvasion*least*limit:
		f.t.Logf("not judged: %.0f bytes/s, but %s", rate, excuse)
	default:
		f.t.Errorf("%.0f bytes/s, want %.2f of %.0f at least (CPUs %.0f%% busy)", rate, least, limit, 100*cpus.busy(settled.at, end.at))
	}
}

// leastEvasion is the part of the wanted rate below which an attempt does not count as one, however busy the machine is.
const leastEvasion = 0.1

// charging holds the bytes on the wire while a counter grew. The counter was read before begin and after end.
type charging struct {
	begin, end  wired
	there       bool // the subject existed both times
	bytes       float64
	least, most float64 // bytes that arrived meanwhile
	lost        float64 // bytes at most that the machine dropped before they arrived
	each        string  // rates in each 100 ms, as parts of the limit
}

// charging measures, for a number of tenths of a second, the bytes on the wire and the bytes that a subject is
// charged.
func (f *field) charging(subject string, limit float64, tenths int) (m charging) {
	f.t.Helper()
	before := f.wire()
	count, counting := f.counted(subject)
	m.begin = f.wire()
	m.end = m.begin
	var each []string
	for range tenths {
		time.Sleep(100 * time.Millisecond)
		last := m.end
		m.end = f.wire()
		rate, _ := m.end.since(last)
		each = append(each, fmt.Sprintf("%.2f", rate/limit))
	}
	now, still := f.counted(subject)
	after := f.wire()
	m.there = !counting.IsZero() && !still.IsZero()
	m.bytes = float64(now - count)
	m.least, m.most = float64(m.end.bytes-m.begin.bytes), float64(after.bytes-before.bytes)
	if packets := m.end.packets - m.begin.packets; packets > 0 {
		m.lost = m.least / float64(packets) * float64(cpus.lost(m.begin.at, m.end.at))
	}
	m.each = strings.Join(each, " ")
	return m
}

func (m charging) String() string {
	text := fmt.Sprintf("charged %.4f to %.4f of what came", m.bytes/m.most, m.bytes/m.least)
	if m.lost > 0 {
		text += fmt.Sprintf(" (%.4f at most was dropped on its way)", m.lost/m.least)
	}
	return text
}

// agrees returns an error if the bytes charged are below or above the arrived bytes by more than these bounds.
func (m charging) agrees(less, more float64) error {
	if m.bytes < m.least-less || m.bytes > m.most+m.lost+more {
		return fmt.Errorf("%.0f bytes were charged, and %.0f to %.0f came (%.0f at most were dropped on their way)", m.bytes, m.least, m.most, m.lost)
	}
	return nil
}

// wired holds the packets and bytes that arrived at B over the wire until an instant.
type wired struct {
	at             testbed.Instant
	bytes, packets uint64 // IP bytes
}

var errTooMuch = errors.New("too much")

// inBudget returns an error if more bytes arrived since another instant than a limit and a burst allow, with 2%.
func (w wired) inBudget(from wired, limit float64, burst time.Duration) error {
	took := w.at.Sub(from.at)
	got, most := float64(w.bytes-from.bytes), limit*(1.02*took.Seconds()+burst.Seconds())
	if got > most {
		return fmt.Errorf("%.0f IP bytes in %v, %.3f of the limit; %.0f may come: %w",
			got, took.Round(time.Millisecond), got/limit/took.Seconds(), most, errTooMuch)
	}
	return nil
}

// since returns bytes and packets per second.
func (w wired) since(from wired) (rate, packets float64) {
	took := w.at.Sub(from.at).Seconds()
	return float64(w.bytes-from.bytes) / took, float64(w.packets-from.packets) / took
}

const ethernet = 14 // bytes of header

func (f *field) wire() wired {
	f.t.Helper()
	for try := 1; ; try++ {
		begin := testbed.Now()
		link, err := f.B.Netlink().LinkByName(testbed.Device)
		if err != nil {
			f.t.Fatalf("read the counters of B: %v", err)
		}
		now := testbed.Now()
		if now.Sub(begin) > 2*time.Millisecond && try < 20 {
			continue // the call had to wait, so the instant of the counters is unknown
		}
		n := link.Attrs().Statistics
		return wired{now, n.RxBytes - ethernet*n.RxPackets, n.RxPackets}
	}
}

// segmented has A's device take single segments, as a wire does, so that each segment is counted with its headers.
func (f *field) segmented() {
	f.t.Helper()
	if err := f.A.Offload(map[string]bool{
		"tx-tcp-segmentation": false, "tx-tcp6-segmentation": false,
		"tx-tcp-ecn-segmentation": false, "tx-tcp-mangleid-segmentation": false,
		"tx-udp-segmentation": false,
	}); err != nil {
		f.t.Fatal(err)
	}
}

// evader is the head of the programs of these tests.
const evader = `
host, port = sys.argv[1].rsplit(":", 1)
there = (host, int(port))
there6 = (sys.argv[2].rsplit(":", 1)[0].strip("[]"), int(port))

def ready(*pid):
    say("ready", *pid)
    wait()
    say("going")

# Calls f in so many threads, again and again.
def threads(n, f):
    def again():
        while True:
            try:
                f()
            except OSError:
                time.sleep(0.001)
    for _ in range(n):
        threading.Thread(target=again, daemon=True).start()
    signal.pause()

# Floods four connections, again and again, whose sockets have these options.
def floods(*options, to=there, protocol=0):
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    def some():
        with socket.socket(family, socket.SOCK_STREAM, protocol) as s:
            for option in options:
                s.setsockopt(*option)
            s.connect(to)
            flood(s)
    threads(4, some)

# Calls f in so many processes at once.
def processes(n, f):
    for i in range(n):
        if os.fork() == 0:
            try:
                f()
            finally:
                os._exit(0)
    signal.pause()
`
