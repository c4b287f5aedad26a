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

// releases is traffic whose limits the daemon of one release has set, and that of another takes over.
type releases struct {
	*field
	user      uint32
	x, y      *flow           // x is limited by itself, too
	made      map[object]bool // objects of the first daemon in the kernel
	firstGone testbed.Instant // the instant when the first daemon was killed
}

const releaseSent, releaseReceived = 5e6, 30e6

// firstRelease starts a daemon, which sets limits, and kills it.
func firstRelease(s *stage) *releases {
	s.t.Helper()
	r := &releases{user: newUsers(), field: newField(s)}
	first := s.daemon()
	r.x = r.send(testbed.SenderConfig{Connections: 2, UID: r.user})
	r.y = r.send(testbed.SenderConfig{})
	s.must("set", "--user", itoa(r.user), "--up", "10MB/s")
	s.must("set", "--pid", itoa(r.rx.PID()), "--down", "30MB/s")
	at := s.must("set", "--pid", r.x.pid(), "--up", "5MB/s")
	r.hold("the first release", at)
	r.made = objectsOf(s.t, first.cmd.Process.Pid)
	r.firstGone = testbed.Now()
	first.kill()
	return r
}

// secondRelease starts the daemon that takes the limits over.
func (r *releases) secondRelease() *daemon {
	r.t.Helper()
	second := r.daemon()
	up := testbed.Now().Add(time.Second)
	r.until(up)
	r.noGap(r.firstGone, up, releaseSent, r.x.port)
	r.hold("the second release", up)
	if nodes := r.nodes(); len(nodes) != 3 {
		r.t.Errorf("%d limits were taken over: %+v", len(nodes), nodes)
	}
	return second
}

// hold checks the limits from an instant on.
func (r *releases) hold(by string, at testbed.Instant) {
	r.t.Helper()
	r.holds("sent, "+by, at, releaseSent, r.x.port)
	r.holds("received, "+by, at, releaseReceived, r.x.port, r.y.port)
}

func anotherRelease(t *testing.T, changed string) {
	t.Helper()
	s := newStage(t)
	leavesOther := otherMachine(t)
	before := ours(t)
	f := firstRelease(s)
	s.otherLayout(changed)

	second := f.secondRelease()
	if left, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/sys/fs/bpf/*_*", second.cmd.Process.Pid)); len(left) > 0 {
		t.Errorf("the first release's pins are left: %q", left)
	}
	leavesOther()
	// The new daemon does not take the settings of the first one for the connections' own settings.
	s.must("unset", "--user", itoa(f.user))
	s.must("unset", "--pid", itoa(f.rx.PID()))
	f.free("lifted", s.must("unset", "--pid", f.x.pid()), freely, f.x.port)
	s.must("down")
	leavesOther()
	s.leaves(f.made, before)
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
