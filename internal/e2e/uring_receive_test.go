package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// uringReader is a program in A that receives by a ring which alone has the socket, and its sender in B.
type uringReader struct {
	*script
	f    *inbound
	from *testbed.Sender // nil for UDP
}

// uringReader starts such a program, of a user, on a port of its own. See receiveByURing for how.
func (f *inbound) uringReader(how string, uid uint32) *uringReader {
	f.t.Helper()
	const port = 6001
	x := &uringReader{f: f, script: f.script(options{in: f.A, uid: uid}, agentArgs(agentURingReads, itoa(uint16(port)), how)...)}
	if why := x.read("uring"); why != "ready" {
		f.t.Skipf("this kernel refuses io_uring: %s", why)
	}
	if strings.HasPrefix(how, "UDP") {
		f.python(options{in: f.B}, datagramSender, f.A4.String(), itoa(uint16(port)), "1400", "20e6", "remote")
	} else {
		x.from = f.sendTo(port, false, testbed.SenderConfig{})
	}
	if what := x.read("uring"); what != "has" {
		f.t.Fatal(what)
	}
	return x
}

// received returns the IP bytes that the program has received, and when. For TCP these are the bytes
// that it has acknowledged, since one request for a gigabyte does not end.
func (x *uringReader) received() (bytes float64, at testbed.Instant) {
	x.f.t.Helper()
	if x.from == nil {
		const headers = 28
		x.tell("how much")
		var got, count float64
		if _, err := fmt.Sscan(x.read("got"), &got, &count); err != nil {
			x.f.t.Fatal(err)
		}
		return got + headers*count, testbed.Now()
	}
	infos, _, err := x.from.Info()
	if err != nil || len(infos) != 1 {
		x.f.t.Fatalf("%d connections: %v", len(infos), err)
	}
	return float64(infos[0].BytesAcked) * perByte, testbed.Now()
}

// rate returns the IP bytes per second that the program receives over a span from now.
func (x *uringReader) rate(over time.Duration) float64 {
	x.f.t.Helper()
	before, from := x.received()
	time.Sleep(over)
	after, to := x.received()
	return (after - before) / to.Sub(from).Seconds()
}

// held checks that the program receives at a limit.
func (x *uringReader) held(what string, limit float64) {
	x.f.t.Helper()
	wait, tolerance := time.Second, downTolerance
	if x.from != nil {
		wait, tolerance = catchUp, fillsHoles
	}
	time.Sleep(wait)
	begin := testbed.Now()
	x.f.near(what, begin, x.rate(span), limit, tolerance)
}

// open checks that the program receives far more than its limit lets through.
func (x *uringReader) open(what string) {
	x.f.t.Helper()
	const least = 12e6 // of 20 MB/s of datagrams
	begin := testbed.Now()
	got := x.rate(500 * time.Millisecond)
	x.f.t.Logf("%s: %.1f MB/s", what, got/1e6)
	if got < least && !excused(x.f.t, begin, testbed.Now()) {
		x.f.t.Errorf("%s: %.0f bytes/s", what, got)
	}
}

// Only an io_uring ring holds the socket by which a program receives. netnice finds the socket when the limit is set,
// and again when the limit is set again, on the process or its user.
func TestDownIOUringAlone(t *testing.T) {
	t.Parallel()
	for _, c := range testutil.Subset([]struct {
		how    string
		ofUser bool // the limit is the user's
	}{
		{"TCP", false},
		{"TCP+large+worked", true},
		{"TCP+large+unseen", false},
		{"TCP+worked", true},
		{"UDP", false},
		{"UDP+worked", true},
		{"UDP+unseen", false},
	}, 2, 6) {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			uid := newUsers()
			x := f.uringReader(c.how, uid)
			subject := []string{"--pid", x.pid()}
			if c.ofUser {
				subject = []string{"--user", itoa(uid)}
			}
			x.open("before the limit")
			for range 2 {
				f.must(append([]string{"set", "--down", "5MB/s"}, subject...)...)
				x.held("with the limit", 5e6)
				f.must(append([]string{"unset"}, subject...)...)
				x.open("lifted")
			}
			if wrong := x.wrong.String(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// The limit is a rule's, which begins, ends and begins again while the program receives.
func TestDownIOUringAloneByRule(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownIOUringAlone and TestRuleHoldsAtExec")
	t.Parallel()
	for _, how := range []string{"TCP+large+worked", "UDP"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			dir, err := os.MkdirTemp(work, "rules-")
			if err != nil {
				t.Fatal(err)
			}
			s.config = dir
			f := newInbound(s, testutil.MustPair(t))
			uid := newUsers()
			x := f.uringReader(how, uid)
			r := &ruled{field: f.field, dir: dir}
			x.open("before the rule")
			for range 2 {
				r.write(fmt.Sprintf("[[rule]]\nname = \"reader\"\nuser = %d\ndown = \"5MB/s\"\n", uid))
				f.assertWithin("the rule holds the program", 5*time.Second, func() bool { return r.ruleMembers("reader") == 1 })
				x.held("with the rule", 5e6)
				r.write("")
				f.assertWithin("the rule is gone", 5*time.Second, func() bool { return r.ruleMembers("reader") == 0 })
				x.open("without the rule")
			}
		})
	}
}
