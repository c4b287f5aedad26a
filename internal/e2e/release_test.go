package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A daemon of another release, whose maps have another layout, takes the limits over. The old limits hold until its
// own do. The test makes an old release out of this one: it pins a map of another size in the place of one. The
// attached programs go on with their maps.
func TestAnotherRelease(t *testing.T) {
	t.Parallel()
	anotherRelease(t, "unknown")
}

// The same applies where only a map of the queues has another layout.
func TestAnotherReleaseOfQueues(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestAnotherRelease; another layout of the queues' maps alone is tested here only")
	t.Parallel()
	anotherRelease(t, "inflows")
}

func anotherRelease(t *testing.T, changed string) {
	t.Helper()
	spare := newUsers()
	const sent, received = 5e6, 30e6
	s := newStage(t)
	leavesOther := otherMachine(t)
	before := ours(t)
	f := newField(s)
	first := s.daemon()
	x := f.send(testbed.SenderConfig{Connections: 2, UID: spare})
	y := f.send(testbed.SenderConfig{})
	s.must("set", "--user", itoa(spare), "--up", "10MB/s")
	s.must("set", "--pid", itoa(f.rx.PID()), "--down", "30MB/s")
	at := s.must("set", "--pid", x.pid(), "--up", "5MB/s")
	f.holds("sent by the first release", at, sent, x.port)
	f.holds("received by the first release", at, received, x.port, y.port)
	made := objectsOf(t, first.cmd.Process.Pid)
	since := testbed.Now()
	first.kill()
	s.otherLayout(changed)

	second := s.daemon()
	up := testbed.Now().Add(time.Second)
	f.until(up)
	f.noGap(since, up, sent, x.port)
	f.holds("sent by the second release", up, sent, x.port)
	f.holds("received by the second release", up, received, x.port, y.port)
	if nodes := s.nodes(); len(nodes) != 3 {
		t.Errorf("%d limits were taken over: %+v", len(nodes), nodes)
	}
	if left, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/sys/fs/bpf/*_*", second.cmd.Process.Pid)); len(left) > 0 {
		t.Errorf("the first release's pins are left: %q", left)
	}
	leavesOther()
	// The new daemon does not take the settings of the first one for the connections' own settings.
	s.must("unset", "--user", itoa(spare))
	s.must("unset", "--pid", itoa(f.rx.PID()))
	f.free("lifted", s.must("unset", "--pid", x.pid()), freely, x.port)
	s.must("down")
	leavesOther()
	s.leaves(made, before)
}

// otherMachine makes one, as a container is, with a limit that is in force without a daemon. Its pins have the same path
// as those of every other machine. The function that it returns checks that its devices are still there.
func otherMachine(t *testing.T) (check func()) {
	t.Helper()
	f := newInbound(newStage(t), testutil.MustPair(t))
	f.must("set", "--pid", itoa(f.rx.PID()), "--down", "1MB/s")
	devices := devicesIn(t, f.A)
	f.daemon.kill()
	return func() {
		t.Helper()
		if now := devicesIn(t, f.A); now != devices || !strings.Contains(now, "netnice") {
			t.Errorf("another machine had the devices %s, and now has %s", devices, now)
		}
	}
}

// noGap checks that a limit holds while one release takes over from another.
func (f *field) noGap(since, up testbed.Instant, limit float64, ports ...uint16) {
	f.t.Helper()
	const step = 100 * time.Millisecond
	most := 0.0
	for at := since; at.Add(step) < up; at = at.Add(step / 2) {
		most = max(most, f.rate(at, at.Add(step), ports...))
	}
	f.t.Logf("at most %.3f of the limit in %s, from release to release", most/limit, step)
	if most > 1.5*limit { // a burst, and the clock of a busy machine
		f.t.Errorf("at most %.1f MB/s in %s, from release to release", most/1e6, step)
	}
}

// otherLayout pins a map of another layout in the place of one.
func (s *stage) otherLayout(name string) {
	s.t.Helper()
	pin := "/sys/fs/bpf/netnice/" + name
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	defer m.Close()
	err = onThrowawayThread(func() error {
		if err := s.enter(); err != nil {
			return err
		}
		if err := os.Remove(pin); err != nil {
			return err
		}
		return m.Pin(pin)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}
