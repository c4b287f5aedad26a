package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

const (
	// A program asks a question of 100 bytes every 25 ms. It prints the numbers of questions and answers, and the
	// median and 99% delays, in seconds.
	questionAsk = `
def ask(host, over):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((host, 6000))
    trips, asked = [], 0

    def hear():
        while True:
            try:
                data = s.recv(200)
            except ConnectionRefusedError:
                continue
            trips.append(time.monotonic() - struct.unpack_from("d", data)[0])

    threading.Thread(target=hear, daemon=True).start()
    end = time.monotonic() + over
    while time.monotonic() < end:
        asked += 1
        s.send(struct.pack("d", time.monotonic()) + bytes(92))
        time.sleep(0.025)
    time.sleep(1)
    trips = sorted(trips) or [0]
    say("asked", asked, len(trips), trips[len(trips) // 2], trips[-1 - len(trips) // 100])
`
	questionProgram = questionAsk + `
say("ready")
wait()
ask(sys.argv[1], 4)
wait()
`
	// A program sends or receives datagrams at a rate, and asks questions meanwhile.
	questionFlood = questionAsk + `
what, host, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
moved = 0

def drain():
    global moved
    while True:
        moved += len(s.recv(2048)) + 28

def pour():
    global moved
    begin = time.monotonic()
    while True:
        ahead = begin + moved / rate - time.monotonic()
        if ahead > 0.001:
            time.sleep(ahead)
        try:
            s.send(bytes(1400))
            moved += 1428
        except ConnectionRefusedError:
            pass

if what == "pour":
    s.connect((host, 6001))
    threading.Thread(target=pour, daemon=True).start()
else:
    s.bind(("", 6001))
    threading.Thread(target=drain, daemon=True).start()
say("ready")
wait()
began, before = time.monotonic(), moved
ask(host, 4)
say("rate", (moved - before) / (time.monotonic() - began))
wait()
`
)

// besideFlood is a user with a limit and two programs: one uses the limit up by datagrams, the other asks questions.
type besideFlood struct {
	*inbound
	uid         uint32
	crowd, ask  *script
	limit       float64
	same, other float64 // seconds within which 99% of the answers have to arrive
}

// A question of 100 bytes by UDP competes with datagrams of three times the limit. It waits no longer than netnice(1)
// says.
// Ingress beyond the limit waits for 50 ms. In the send direction a program within its share does not wait for the
// whole backlog of the others. It waits for two packets of that at most, which are one turn. A question of the
// flooding program itself waits behind its socket's buffer, which holds 0.1 s. netnice makes the buffer smaller when
// half as much again waits.
func TestQuestionBesideFlood(t *testing.T) {
	t.Parallel()
	const limit, packet = 1e6, 1514
	for _, c := range []struct {
		way         string
		same, other float64
	}{
		{"down", 0.05, 0.05},
		{"up", 0.15, 2 * packet / limit},
	} {
		t.Run(c.way, func(t *testing.T) {
			t.Parallel()
			f := besideFlood{inbound: newInbound(newStage(t), testutil.MustPair(t)), uid: newUsers(), limit: limit}
			f.same, f.other = c.same+packet/limit, c.other+packet/limit
			f.python(options{in: f.B}, datagramEcho, "6000").read("ready")
			f.must("set", "--user", itoa(f.uid), "--"+c.way, "1MB/s")
			f.ask = f.python(options{in: f.A, uid: f.uid}, questionProgram, f.B4.String())
			f.ask.read("ready")
			begin := testbed.Now()
			if c.way == "down" {
				f.flood(f.A, f.uid, "drain", &f.crowd)
				f.begin() // questions and flood start together
				f.flood(f.B, 0, "pour", nil)
			} else {
				f.flood(f.B, 0, "drain", nil)
				f.flood(f.A, f.uid, "pour", &f.crowd)
				time.Sleep(1500 * time.Millisecond) // the queue exists, and the buffer has its final size
				f.begin()
			}
			f.judgeDelays(begin)
		})
	}
}

// flood starts a program that pours to the other namespace, or drains from it.
func (f *besideFlood) flood(in *testbed.NetNS, uid uint32, what string, is **script) {
	f.t.Helper()
	host := f.B4
	if in == f.B {
		host = f.A4
	}
	x := f.python(options{in: in, uid: uid}, questionFlood, what, host.String(), fmt.Sprint(3*f.limit))
	x.read("ready")
	if is != nil {
		*is = x
	}
}

// begin has both programs ask questions.
func (f *besideFlood) begin() {
	f.t.Helper()
	f.crowd.tell("ask")
	f.ask.tell("ask")
}

// judgeDelays checks the delays that both programs have seen since an instant.
func (f *besideFlood) judgeDelays(since testbed.Instant) {
	f.t.Helper()
	const tolerance = 0.02
	var rate float64
	for _, of := range []struct {
		who   string
		x     *script
		bound float64
		least float64 // part of the questions to be answered; the flooding program's own are dropped like its flood
	}{{"the same program", f.crowd, f.same, 0.05}, {"another program", f.ask, f.other, 0.5}} {
		var asked, came, median, late float64
		if _, err := fmt.Sscan(of.x.read("asked"), &asked, &came, &median, &late); err != nil {
			f.t.Fatal(err)
		}
		f.t.Logf("%s: %.0f of %.0f questions answered, median %.1f ms, 99%% within %.1f", of.who, came, asked, 1e3*median, 1e3*late)
		if came < of.least*asked {
			f.t.Errorf("%s: %.0f of %.0f questions are answered", of.who, came, asked)
		}
		excuse := cpus.excuse(since, testbed.Now())
		switch {
		case late <= of.bound+tolerance:
		case excuse != "":
			f.t.Logf("not judged: 99%% of the answers to %s come within %.0f ms, but %s", of.who, 1e3*late, excuse)
		default:
			f.t.Errorf("99%% of the answers to %s come within %.0f ms, want %.0f", of.who, 1e3*late, 1e3*of.bound)
		}
	}
	if _, err := fmt.Sscan(f.crowd.read("rate"), &rate); err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("the flood has %.3f of the limit", rate/f.limit)
	if rate > 1.05*f.limit+2*1428 {
		f.t.Errorf("%.0f bytes/s of a limit of %.0f", rate, f.limit)
	}
	if rate < 0.5*f.limit && !excused(f.t, since, testbed.Now()) {
		f.t.Errorf("%.0f bytes/s are no flood of a limit of %.0f", rate, f.limit)
	}
}
