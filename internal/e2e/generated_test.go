package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/testutil/trafficgen"
)

// These constants name environment variables: the seeds of TestGenerated as FIRST:COUNT, or programs as JSON, one
// a line.
const (
	seedsVariable   = "NETNICE_TEST_SEEDS"
	programVariable = "NETNICE_TEST_PROGRAM"
)

const (
	generatedPeers = 7000 // first port of the peers, in B
	generatedServe = 7100 // first port of the servers, in A
	// These are the first ports of adverse peers: behind seven others of sender.py, and behind six others of receiver.py.
	// Those of receiver.py follow all ten of sender.py.
	generatedAdverse       = generatedPeers + 7
	generatedAdverseFloods = generatedPeers + 10 + 7
	lowerAwait             = 2 * time.Second
	receivedAwait          = 5 * time.Second
	drainAwait             = 20 * time.Second
)

// generatedLimit, generatedLower and generatedRaised are the limit of a generated program, its lowered and its raised
// limit, in bytes/s. They are a tenth of that on an emulated processor.
func generatedLimit() float64  { return 3e6 / float64(timeoutScale) }
func generatedLower() float64  { return 1e6 / float64(timeoutScale) }
func generatedRaised() float64 { return 4.5e6 / float64(timeoutScale) }

// A program sends no more than its limit lets through, whatever it does with the network. Its charge equals the
// bytes that left. A program without a limit sends as if the other one did not exist.
func TestGenerated(t *testing.T) { // not parallel to other tests: its floods take both processors
	if !goOn(t, false, trafficgen.New) {
		newGenerated(t, false).seeds(3, trafficgen.New)
	}
}

// A program receives no more than its limit lets through, whatever it does with the network, and all that it receives
// is counted. A program without a limit receives as if the other one did not exist.
func TestGeneratedReceiving(t *testing.T) { // not parallel to other tests either
	if !goOn(t, true, trafficgen.NewReceiving) {
		newGenerated(t, true).seeds(2, trafficgen.NewReceiving)
	}
}

// seeds judges the programs of several seeds: count of them, or more in make test-all, or those that the environment
// names.
func (g *generated) seeds(count uint64, random func(seed uint64) trafficgen.Program) {
	t := g.t
	t.Helper()
	first, tries := uint64(1), 10
	if testutil.All() {
		count, tries = 8*count, 40
	}
	if text := os.Getenv(seedsVariable); text != "" {
		if _, err := fmt.Sscanf(text, "%d:%d", &first, &count); err != nil {
			t.Fatalf("%s=%s: want FIRST:COUNT", seedsVariable, text)
		}
	}
	if text := os.Getenv(programVariable); text != "" {
		for line := range strings.Lines(text) {
			p, err := trafficgen.Parse([]byte(line))
			if err == nil {
				t.Log(p)
				err = g.run(p)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return
	}
	cover := trafficgen.NewCoverage()
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		p := random(seed)
		t.Logf("seed %d: %v", seed, p) // logged also if the program cannot run
		err := g.judged(p)
		cover.Add(p, g.refused)
		if err == nil {
			continue
		}
		small := g.shrunk(p, tries)
		text, _ := json.Marshal(small) // cannot fail: the program holds maps of strings
		t.Errorf("seed %d (%s=%d:1): %v\n%v\nis wrong, and so is: %v\n%s", seed, seedsVariable, seed, err, p, small, text)
	}
	t.Log(cover)
}

// shrunk returns the smallest program found in some tries that fails like this one.
func (g *generated) shrunk(p trafficgen.Program, tries int) trafficgen.Program {
	g.t.Helper()
	return trafficgen.Shrink(p, tries, func(p trafficgen.Program) bool { return g.run(p) != nil })
}

// These programs once failed TestGenerated.
func TestGeneratedKept(t *testing.T) { // not parallel to other tests either
	newGenerated(t, false).kept("a_socket_for_each_datagram", "mptcp_both_ways", "no_room_for_state", "udp_segments_with_ip_options")
}

// These programs once failed TestGeneratedReceiving.
func TestGeneratedReceivingKept(t *testing.T) { // nor is this one
	newGenerated(t, true).kept("udp_lite_received")
}

// kept judges the programs that once failed: in make test only some of them.
func (g *generated) kept(names ...string) {
	g.t.Helper()
	all, err := trafficgen.Kept()
	if err != nil {
		g.t.Fatal(err)
	}
	maps.DeleteFunc(all, func(_ string, p trafficgen.Program) bool { return p.Receives != g.receives })
	for name, p := range testutil.SubsetOf(all, names...) {
		if err := g.judged(p); err != nil {
			g.t.Errorf("%s: %v", name, err)
		}
	}
}

// generated runs generated programs, one after the other.
type generated struct {
	*field
	uid       uint32
	receives  bool
	peer      *script
	adverse   *testbed.Adverse // nil = the path is usual
	program   *script
	unlimited *script         // sends a datagram now and then, without a limit
	heard     *script         // receives these datagrams
	refused   map[string]bool // choices that the kernel did not allow in the last program
	sent      map[string]bool // senders of the last program that sent something, by number
}

func newGenerated(t *testing.T, receives bool) *generated {
	t.Helper()
	g := &generated{uid: newUsers() + 61, receives: receives, field: newField(upStage(t))}
	from, to, at := g.A, g.B, g.B4
	if receives {
		from, to, at = g.B, g.A, g.A4
	}
	if g.uid > math.MaxInt32 { // ping_group_range takes no higher group
		g.uid -= 1_000_000_000
	}
	t.Cleanup(g.endAdverse)
	g.segmented()
	_ = g.B.Sysctl("net/ipv4/tcp_shrink_window", "1") // windows shrink less before Linux 6.5, which has it not
	for _, ns := range []*testbed.NetNS{g.A, g.B} {
		err := errors.Join(ns.Sysctl("net/ipv4/ping_group_range", "0 2147483647"), ns.Sysctl("net/ipv4/tcp_fastopen", "1027")) // for all
		// Parts of datagrams that were refused would leave no room for others, for half a minute.
		for name, value := range map[string]string{
			"net/ipv4/ipfrag_time": "1", "net/ipv4/ipfrag_high_thresh": "67108864",
			"net/ipv6/ip6frag_time": "1", "net/ipv6/ip6frag_high_thresh": "67108864",
		} {
			err = errors.Join(err, ns.Sysctl(name, value))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	address := fmt.Sprintf("%s:%d", at, generatedPeers-1)
	g.heard = g.python(options{in: to, uid: g.uid + 1}, `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", int(sys.argv[1].rsplit(":", 1)[1])))
count = 0
def listen():
    global count
    while True:
        s.recv(100)
        count += 1
threading.Thread(target=listen, daemon=True).start()
say("ready")
while wait():
    say("heard", count)
`, address)
	g.heard.read("ready")
	g.unlimited = g.python(options{in: from, uid: g.uid + 1}, `
host, port = sys.argv[1].rsplit(":", 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((host, int(port)))
count = 0
def talk():
    global count
    while True:
        try:
            s.send(bytes(72))
        except OSError as e:
            say("failed", e)
        count += 1
        time.sleep(0.02)
threading.Thread(target=talk, daemon=True).start()
say("ready")
while wait():
    say("sent", count)
`, address)
	g.unlimited.read("ready")
	return g
}

// others returns the numbers of datagrams that the program without a limit has sent, and that have arrived.
func (g *generated) others() (sent, came int) {
	g.t.Helper()
	ask := func(x *script, word string) int {
		x.tell("?")
		n, err := strconv.Atoi(x.read(word))
		if err != nil {
			g.t.Fatal(err)
		}
		return n
	}
	sent = ask(g.unlimited, "sent")
	return sent, ask(g.heard, "heard")
}

// judged calls run, and calls it again if the machine was disturbed meanwhile. A disturbance is no excuse for bytes beyond
// a limit.
func (g *generated) judged(p trafficgen.Program) error {
	g.t.Helper()
	begin := testbed.Now()
	err := g.run(p)
	disturbed := cpus.excuse(begin, testbed.Now())
	if err == nil || disturbed == "" || errors.Is(err, errTooMuch) || g.remeasured == mostRemeasured {
		return err
	}
	g.remeasured++
	g.t.Logf("measured again: seed %d: %v, but %s", p.Seed, err, disturbed)
	return g.run(p)
}

// run returns the errors of a program's run, or nil.
func (g *generated) run(p trafficgen.Program) error {
	g.t.Helper()
	g.refused, g.sent = map[string]bool{}, map[string]bool{}
	before := g.status().Counters
	x, pid, dir := g.begin(p)
	err := g.limit(p, x, pid, dir)
	g.end(p, x, dir)
	for i, s := range p.Senders {
		allowed := p.Receives && mayReceiveNothing(s)
		if !g.sent[itoa(i)] && !g.refusedMuch() && !allowed {
			err = errors.Join(err, fmt.Errorf("sender %d sends nothing: %.500s", i, x.wrong.String()))
		}
	}
	fine := map[string]bool{
		"socket_storage": p.Any("option", "md5_full") || p.Any("option2", "md5_full"),
		// Packets leave and are charged before a new limit has its class in an existing queue.
		"send_class": p.Any("kind", "udp", "udplite", "ping", "raw"),
	}
	for fault, n := range g.status().Counters {
		if n > before[fault] && !fine[fault] {
			err = errors.Join(err, fmt.Errorf("fault %s: %d times", fault, n-before[fault]))
		}
	}
	return err
}

// refusedMuch says whether the last program was refused something that it has no substitute for.
func (g *generated) refusedMuch() bool {
	for choice := range g.refused {
		if choice != "kind=smc" && choice != "afterwards=tls" {
			return true
		}
	}
	return false
}

// mayReceiveNothing says whether a receiver may get nothing, limited or not. Of a flood of datagrams that is dropped, none
// may come while a socket is open for some milliseconds. By MPTCP the kernel never wakes up who waits for 30,000 bytes in a
// buffer of 2,304 (Linux 6.18, tried without netnice).
func mayReceiveNothing(s trafficgen.Traits) bool {
	if strings.HasPrefix(s["kind"], "udp") {
		return s["life"] == "closes" || s["life"] == "ends"
	}
	options := s["option"] + " " + s["option2"]
	return s["kind"] == "mptcp" && strings.Contains(options, "rcvbuf_small") && strings.Contains(options, "rcvlowat")
}

// limit has a program do its work while it has a limit of the kind that the program names.
func (g *generated) limit(p trafficgen.Program, x *script, pid, dir string) error {
	g.t.Helper()
	subject, around := g.subjects(p, pid, dir)
	limited := func(rate float64) {
		g.must(slices.Concat([]string{"set"}, subject, []string{"--" + p.Limit["direction"], fmt.Sprintf("%.0fB/s", rate)})...)
	}
	if p.Limit["around"] != "nothing" {
		g.must(slices.Concat([]string{"set"}, around, []string{"--" + g.direction(), fmt.Sprintf("%.0fB/s", 2*generatedLimit())})...)
		defer g.netnice(append([]string{"unset"}, around...)...) // it may have ended with its last process already
	}
	defer g.netnice(append([]string{"unset"}, subject...)...)
	if p.Limit["when"] == "before" {
		limited(generatedLimit())
	}
	x.tell("make")
	g.hear(x, "made")
	if p.Limit["when"] == "connected" {
		limited(generatedLimit())
	}
	g.pull(p)
	x.tell("go")
	g.hear(x, "going")
	if p.Limit["when"] == "sending" {
		time.Sleep(500 * time.Millisecond)
		limited(generatedLimit())
	}
	g.awaitLimit(p, p.Limit["when"], subject)
	free := wasFree(p.Limit["when"])
	err := g.window(p, subject, around, free, generatedLimit())
	rate := generatedLimit()
	switch p.Limit["then"] {
	case "lower":
		rate = generatedLower()
		limited(rate)
	case "raise":
		rate = generatedRaised()
		limited(rate)
	case "again":
		g.must(append([]string{"unset"}, subject...)...)
		time.Sleep(100 * time.Millisecond)
		limited(rate)
	}
	g.awaitLimit(p, p.Limit["then"], subject)
	return errors.Join(err, g.window(p, subject, around, free || wasFree(p.Limit["then"]), rate))
}

// awaitLimit waits until a limit that is set in a certain way must hold. Data of connections that were closed before it
// belong to no process, and only the limit of a cgroup or user holds for them. The next segments of connections keep their
// departure time of before a limit was lowered.
func (g *generated) awaitLimit(p trafficgen.Program, how string, subject []string) {
	time.Sleep(2 * settle)
	if g.receives {
		g.awaitReceived(p, how, listedAs(subject))
		return
	}
	// What waits for the limit around it leaves by that (seed 44089): a send buffer holds up to 8 MB.
	if wasFree(how) && p.Limit["around"] != "nothing" && p.Any("kind", "udp", "udplite", "ping", "raw") {
		time.Sleep(lowerAwait)
	}
	switch {
	case !comesAndGoes(p):
	case wasFree(how):
		time.Sleep(700 * time.Millisecond)
		if p.Limit["subject"] == "pid" && drainsSlowly(p) {
			eventually(drainAwait/timeoutScale, func() bool {
				before := g.wire()
				time.Sleep(time.Second)
				rate, _ := g.wire().since(before)
				return rate < 1.1*generatedLimit()
			})
		}
	case how == "lower": // a connection's timer may have been set two seconds ahead
		time.Sleep(lowerAwait)
	}
}

// wasFree says whether a limit that is set in a certain way applies to a program that sends without it before.
func wasFree(how string) bool { return how == "sending" || how == "again" }

// drainsSlowly says whether what a program leaves in connections that it closes takes long: peers that seldom read, or a
// low rate of its own (seed 22236: 12 connections of 300 kB/s, closed while the limit was lifted, sent for seconds).
func drainsSlowly(p trafficgen.Program) bool {
	return p.Any("peer", "dawdles", "stalls", "small", "shrinks", "holes") || p.Any("option", "pacing_low") || p.Any("option2", "pacing_low")
}

// comesAndGoes says whether a program has connections that end.
func comesAndGoes(p trafficgen.Program) bool {
	return p.Any("life", "closes", "aborts", "ends", "crowd", "serves", "wanders") || p.Any("peer", "resets")
}

// agrees returns an error if the bytes that a subject is charged are below or above those that arrive by more than these
// bounds for a second. One datagram of each sender may be charged in one window and arrive in the next. If only that explains
// a difference, a window of four seconds decides.
func (g *generated) agrees(p trafficgen.Program, m charging, subject string, limit, less, more float64) error {
	g.t.Helper()
	const seconds = 4
	large := largeDatagrams(p)
	if err := m.agrees(less+large, more+large); err != nil || m.agrees(less, more) == nil {
		return err
	}
	longer := g.charging(subject, limit, 10*seconds)
	g.t.Logf("seed %d: %v; over %d s: %v", p.Seed, m, seconds, longer)
	if !longer.there {
		return fmt.Errorf("%s is not there after %d s", subject, seconds)
	}
	return longer.agrees(seconds*less+large, seconds*more+large)
}

// largeDatagrams returns the bytes of one datagram of each sender of datagrams.
func largeDatagrams(p trafficgen.Program) (bytes float64) {
	for _, s := range p.Senders {
		if s["kind"] != "tcp" && s["kind"] != "mptcp" {
			n, _ := strconv.Atoi(s["bytes"]) // cannot fail
			bytes += float64(min(n, 1<<16))
		}
	}
	return bytes
}

// window measures for a second, and returns the errors. Connections that a program closed while it had only the
// limit around it stay under that limit until they have drained. In that case window checks the limit around.
func (g *generated) window(p trafficgen.Program, inner, around []string, wasFree bool, limit float64) error {
	g.t.Helper()
	if g.receives {
		return g.windowReceived(p, listedAs(inner), limit)
	}
	other := p.Limit["around"] != "nothing" && wasFree && comesAndGoes(p)
	if other {
		inner, limit = around, 2*generatedLimit()
	}
	subject := listedAs(inner)
	sent, came := g.others()
	m := g.charging(subject, limit, 10)
	sentNow, cameNow := g.others()
	burst := evadeBurst + evadeEarly
	if comesAndGoes(p) {
		burst += evadeForgotten
	}
	if p.Any("kind", "ping") { // control messages may be that far ahead
		burst += time.Second
	}
	err := m.end.inBudget(m.begin, limit, burst)
	if sentNow-sent < 20 {
		err = errors.Join(err, fmt.Errorf("another program sent %d datagrams, not 50", sentNow-sent))
	}
	// The receiver's device drops some while floods keep a processor from it: 2 of 155 were seen.
	if lost := (sentNow - sent) - (cameNow - came); lost > 1+(sentNow-sent)/20 {
		err = errors.Join(err, fmt.Errorf("of %d datagrams that another program sent %d did not come", sentNow-sent, lost))
	}
	if !m.there {
		return errors.Join(err, fmt.Errorf("%s is not there: %s", subject, g.netnice("ls").out))
	}
	rate, packets := m.end.since(m.begin)
	g.t.Logf("seed %d: %.3f of the limit in %.0f packets/s, %v", p.Seed, rate/limit, packets, m)
	// The slack covers chunks at their departure time, and handshakes. The kernel sends some handshakes without the
	// socket.
	slack := 0.02*limit + 2*packets
	over := slack
	if comesAndGoes(p) { // each connection is charged 52 bytes in advance
		over += 64 * packets
		if p.Any("option", "fastopen") || p.Any("option2", "fastopen") { // hundreds wait: decision 29, Left
			over += 0.5 * limit
		}
	}
	if p.Any("peer", "itself") { // charged for what the kernel may answer: it answers some only, and others shortly
		over += 2 * limit
	}
	if !other { // between two limits, datagrams that wait or are dropped are charged to one limit only
		err = errors.Join(err, g.agrees(p, m, subject, limit, slack, over))
	}
	if err != nil {
		err = fmt.Errorf("%w; each 100 ms, of the limit: %s", err, m.each)
	}
	return err
}
