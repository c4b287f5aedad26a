package e2e

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// netnice refuses a second instance with pins of its own, unless --beside says that it is intended. A refused
// instance changes nothing. A daemon always accepts its own pins.
func TestRefusedBeside(t *testing.T) {
	// Not parallel: it counts what the whole machine holds.
	f := newField(upStage(t))
	first := f.daemons[0]
	x := f.send(testbed.SenderConfig{})
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	f.env = slices.DeleteFunc(os.Environ(), func(v string) bool { return v == testbed.Beside })
	at := []string{"--socket", "/run/other/netnice.sock"}
	other := slices.Concat(at, []string{"--state-dir", "/var/lib/other", "--pin-dir", "/sys/fs/bpf/other"})
	const why, remedy = "netnice is up already, with its programs in /sys/fs/bpf/netnice", "netnice down --pin-dir /sys/fs/bpf/netnice"

	before, files := ours(t), f.files()
	for _, command := range []string{"daemon", "up"} {
		f.refused(f.netnice(append([]string{command}, other...)...), why, remedy)
	}
	if got := f.files(); !slices.Equal(got, files) {
		t.Errorf("files were %q, are %q", files, got)
	}
	for o := range added(t, before) {
		t.Errorf("%v was made for a daemon that was refused", o)
	}
	f.holds("the first's", testbed.Now(), 5e6, x.port)

	f.must(append([]string{"up", "--beside"}, other...)...)
	t.Cleanup(func() {
		if r := f.netnice(append([]string{"down"}, at...)...); r.code != 0 {
			t.Errorf("down of the second: %v", r)
		}
	})
	if r := f.netnice(append([]string{"status"}, at...)...); r.code != 0 || !strings.Contains(r.out, "running") {
		t.Errorf("the second beside the first: %v", r)
	}

	first.kill()
	f.daemon() // a coexisting instance still, but on its own pins
	if n := f.nodes()["pid:"+x.pid()]; len(n.Limits) != 1 || n.Limits[0].BytesPerSec != 5e6 {
		t.Errorf("after a crash it has %+v", n.Limits)
	}
}

// Two instances come up at the same moment: one of them is refused.
func TestRefusedBesideAtOnce(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestRefusedBeside")
	machineAlone(t) // both would be refused because of another test's daemon
	s := newStage(t)
	s.env = slices.DeleteFunc(os.Environ(), func(v string) bool { return v == testbed.Beside })
	results := make([]result, 2)
	var both sync.WaitGroup
	for i := range results {
		name := "one-" + itoa(i)
		at := []string{"--socket", "/run/" + name + "/netnice.sock"}
		both.Go(func() {
			results[i] = s.netnice(slices.Concat([]string{"up"}, at,
				[]string{"--state-dir", "/var/lib/" + name, "--pin-dir", "/sys/fs/bpf/" + name})...)
		})
		t.Cleanup(func() { s.netnice(append([]string{"down"}, at...)...) })
	}
	both.Wait()
	if results[0].code != 0 {
		results[0], results[1] = results[1], results[0]
	}
	if results[0].code != 0 || results[1].code == 0 || !strings.Contains(results[1].err, "netnice is up already") {
		t.Errorf("want one that is up and one that is refused:\n%v\n%v", results[0], results[1])
	}
}

// Two instances limit the same connection. Each takes its own limit away, and leaves the connection with the limit
// of the other.
func TestLiftedBeside(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestRefusedBeside; two instances with one connection are tested here only")
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	other := upStage(t)
	const first, second, most = 400e3, 5e6, freely
	uid := spare + 66
	user := itoa(uid)
	x := f.send(testbed.SenderConfig{UID: uid})
	set := func(s *stage, rate string) testbed.Instant {
		t.Helper()
		return s.must("set", "--user", user, "--up", rate)
	}

	f.until(set(f.stage, "400kB/s").Add(time.Second)) // the rate falls from 100 MB/s
	f.holds("the second's, which is higher", set(other, "5MB/s"), first, x.port)
	f.until(f.must("unset", "--user", user).Add(2 * time.Second)) // the second has seen the disarmed callbacks
	f.holds("the first's lifted", testbed.Now(), second, x.port)
	f.free("both lifted", other.must("unset", "--user", user), most, x.port)

	f.until(set(f.stage, "400kB/s").Add(time.Second))
	set(other, "5MB/s")
	f.holds("the second's lifted", other.must("unset", "--user", user), first, x.port)
	f.free("both lifted again", f.must("unset", "--user", user), most, x.port)
}
