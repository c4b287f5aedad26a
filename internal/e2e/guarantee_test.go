package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// udpFlood sends as fast as it can to a port without a reader, and prints the amount.
const udpFlood = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
host, port = sys.argv[1].rsplit(":", 1)
s.connect((host, int(port)))
say("ready")
while True:
    try:
        s.send(bytes(1400))
    except OSError:
        time.sleep(0.001)
`

// eachSecond returns the egress of A for a port, second by second, in parts of a rate.
func (f *field) eachSecond(after testbed.Instant, seconds int, rate float64, port uint16) (parts []float64) {
	f.t.Helper()
	for i := range seconds {
		from := after.Add(time.Duration(i) * time.Second)
		parts = append(parts, f.rate(from, from.Add(time.Second), port)/rate)
	}
	return parts
}

// compete starts programs of a user that send as fast as they can: some with 16 connections each, and a flood of
// datagrams, which it returns.
func (f *field) compete(user uint32, programs int) *script {
	f.t.Helper()
	for range programs {
		f.send(testbed.SenderConfig{UID: user, Connections: 16})
	}
	f.ports++
	flood := f.python(options{in: f.A, uid: user}, udpFlood, f.to(f.ports))
	flood.read("ready")
	return flood
}

// A program has a guarantee of two fifths of its user's limit. It gets that in every second, while other programs send
// by many connections and a flood of datagrams. All programs together get the limit. Without the guarantee the program
// has its fair part. The others get the part that it does not use at once.
func TestGuarantee(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	const limit, guarantee, others, seconds = 5e6, 2e6, 4, 4
	user := spare + 43 // a user of this test alone
	f.must("set", "--user", itoa(user), "--up", "5MB/s")
	x := f.send(testbed.SenderConfig{UID: user})
	f.compete(user, others)
	time.Sleep(time.Second)

	fair := f.eachSecond(testbed.Now(), 2, limit, x.port)
	t.Logf("without a guarantee: %.3f of the limit, fair %.3f", fair, 1.0/(others+2))
	if fair[1] > 0.25 {
		t.Errorf("one of %d programs has %.3f of the limit without a guarantee", others+2, fair[1])
	}

	at := f.must("set", "--pid", x.pid(), "--min", "2MB/s")
	f.judge(at, seconds*time.Second, func(from, _ testbed.Instant) error {
		parts := f.eachSecond(from, seconds, guarantee, x.port)
		sum := f.charged("user:"+itoa(user), time.Second) // datagrams included
		t.Logf("guaranteed: %.3f of the guarantee each second, all %.4f of the limit", parts, sum/limit)
		for _, part := range parts {
			if err := compare("the guaranteed", part*guarantee, max(part*guarantee, guarantee), 0.02); err != nil {
				return err
			}
		}
		return compare("all", sum, limit, 0.02)
	})

	y := f.python(options{in: f.A, uid: user}, "say('ready')\nwait()")
	y.read("ready")
	r := f.netnice("set", "--pid", y.pid(), "--min", "3MB/s")
	f.refused(r, "does not fit into the limit of 5 MB/s on user:"+itoa(user)+": 4.75 MB/s of it may be guaranteed, 2 MB/s are already, 2.75 MB/s are left", "netnice show")

	at = f.must("set", "--pid", x.pid(), "--min", "0")
	f.judge(at.Add(500*time.Millisecond), 2*time.Second, func(from, to testbed.Instant) error {
		return compare("lifted", min(f.rate(from, to, x.port), limit/4), limit/(others+2), 0.5)
	})
	f.must("set", "--pid", x.pid(), "--min", "2MB/s")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	f.until(f.drained(x.port).Add(300 * time.Millisecond))
	since := testbed.Now()
	f.near("what the guaranteed program has left", since, f.charged("user:"+itoa(user), 2*time.Second), limit, 0.02)
}

// UDP egress is guaranteed, too, also while it waits in a queue. netnice ls shows the egress of a program without a
// limit of its own.
func TestGuaranteeUDP(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGuarantee and internal/clock TestKernelGuaranteeIsModel")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	const limit, guarantee = 5e6, 2e6
	user := spare + 47
	f.must("set", "--user", itoa(user), "--up", "5MB/s")
	x := f.compete(user, 3)
	f.must("set", "--pid", x.pid(), "--weight", "99")
	time.Sleep(3 * time.Second)
	t.Logf("without a guarantee: %.3f of the limit, fair 0.25", f.charged("pid:"+x.pid(), 2*time.Second)/limit)
	f.must("set", "--pid", x.pid(), "--min", "2MB/s")
	time.Sleep(2 * time.Second)
	begin := testbed.Now()
	got := f.charged("pid:"+x.pid(), 3*time.Second)
	all := f.charged("user:"+itoa(user), time.Second)
	t.Logf("guaranteed: %.3f of the guarantee, all %.4f of the limit", got/guarantee, all/limit)
	f.near("datagrams with a guarantee", begin, min(got, guarantee), guarantee, 0.02)
	f.near("all", begin, all, limit, 0.02)
}

// A guarantee takes its part of every limit around it, and only the administrator may give one.
func TestGuaranteeOfHost(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGuarantee and TestHost")
	machineAlone(t)
	spare := newUsers()
	f := newField(upStage(t))
	user := spare + 44
	x := f.send(testbed.SenderConfig{UID: user})
	y := f.send(testbed.SenderConfig{UID: user, Connections: 8})
	z := f.send(testbed.SenderConfig{UID: spare + 45, Connections: 32})
	f.must("set", "--user", itoa(user), "--up", "7MB/s")
	f.must("set", "--user", itoa(user), "--min", "6MB/s")
	f.must("set", "--pid", x.pid(), "--min", "5MB/s")
	at := f.must("set", "--host", "--up", "10MB/s", "--loopback=false")
	from := at.Add(1500 * time.Millisecond)
	to := from.Add(2 * time.Second)
	rx, ry, rz := f.rate(from, to, x.port), f.rate(from, to, y.port), f.rate(from, to, z.port)
	f.must("unset", "--host")
	t.Logf("of a host's 10 MB/s: guaranteed 5 of a user's 6 MB/s %.0f, beside it %.0f, another user %.0f", rx, ry, rz)
	f.near("the guaranteed process", from, min(rx, 5e6), 5e6, 0.02)
	f.near("its user", from, rx+ry, 7e6, 0.02)
	f.near("all", from, rx+ry+rz, 10e6, 0.03)

	r := f.asUser("set", "--user", "65534", "--min", "1MB/s")
	f.refused(r, "only the administrator may guarantee a rate", "sudo netnice set")
}

// A program in the background gets next to nothing while others want the limit. It has all of it a fifth of a second
// after they stop. They have the limit within 100 ms after they begin.
func TestBackground(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGuarantee and internal/clock TestShareByWeight, TestIdleShareGoesToOthers")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	const limit = 10e6
	user := spare + 46
	f.must("set", "--user", itoa(user), "--up", "10MB/s")
	backup := f.send(testbed.SenderConfig{UID: user, Connections: 4})
	f.must("set", "--pid", backup.pid(), "--background")
	f.holds("alone", testbed.Now().Add(100*time.Millisecond), limit, backup.port)
	bulk := f.sender(testbed.SenderConfig{UID: user})
	if err := bulk.Connect(); err != nil {
		t.Fatal(err)
	}
	begin := bulk.begin()
	f.judge(begin, 2*time.Second, func(from, to testbed.Instant) error {
		back, busy := f.rate(from, to, backup.port)/limit, f.rate(from, to, bulk.port)/limit
		t.Logf("beside the other: background %.4f of the limit, the other %.4f", back, busy)
		if back > 0.02 {
			return fmt.Errorf("the background has %.4f of the limit", back)
		}
		return compare("both", (back+busy)*limit, limit, 0.02)
	})
	if err := bulk.Close(); err != nil {
		t.Fatal(err)
	}
	end := f.drained(bulk.port).Add(200 * time.Millisecond)
	f.near("200 ms after the other has ended", end, min(f.rate(end, end.Add(time.Second), backup.port), limit), limit, 0.05)
	if n := f.nodes()["pid:"+backup.pid()]; n.Weight != 1 {
		t.Errorf("the background program is shown as %+v", n)
	}
}

// An interactive program gets its demand before any number of others. They get the rest.
func TestInteractive(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGuarantee and internal/clock TestGuaranteeAndShare")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	const limit = 10e6
	user := spare + 48
	f.must("set", "--user", itoa(user), "--up", "10MB/s")
	x := f.send(testbed.SenderConfig{UID: user})
	ports := []uint16{}
	for range 3 {
		ports = append(ports, f.send(testbed.SenderConfig{UID: user, Connections: 8}).port)
	}
	at := f.must("set", "--pid", x.pid(), "--interactive")
	f.judge(at.Add(time.Second), 2*time.Second, func(from, to testbed.Instant) error {
		got, others := f.rate(from, to, x.port)/limit, f.rate(from, to, ports...)/limit
		t.Logf("interactive %.4f of the limit, the others %.4f", got, others)
		if got < 0.95 {
			return fmt.Errorf("the interactive program has %.4f of the limit", got)
		}
		return compare("all", (got+others)*limit, limit, 0.02)
	})
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	f.holds("what it leaves", f.drained(x.port).Add(200*time.Millisecond), limit, ports...)
}
