package e2e

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
)

// gone checks that a subject disappears from ls within two seconds.
func (s *stage) gone(subject string) {
	s.t.Helper()
	if !s.assertWithin(subject+" goes from ls", 2*time.Second, func() bool { _, there := s.nodes()[subject]; return !there }) {
		s.t.Errorf("ls shows %+v", s.nodes()[subject])
	}
}

// The limit of a process tree outlives its root and ends with its last member.
func TestLimitEndsWithFamily(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
pid = os.fork()
if pid == 0:
    say("child", os.getpid())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    flood(connect(sys.argv[1]))
    os._exit(0)
wait()
os._exit(0)
`, f.to(a))
	child, err := strconv.Atoi(x.read("child"))
	if err != nil {
		t.Fatal(err)
	}
	f.must("set", "--pid", x.pid(), "--up", "5MB/s")
	x.tell("end")
	time.Sleep(1200 * time.Millisecond) // the daemon's tick has passed; the root is a zombie, not a member
	f.holds("the child alone", testbed.Now(), 5e6, a)
	if n, there := f.nodes()["pid:"+x.pid()]; !there || n.Processes != 1 {
		t.Errorf("a child lives, ls shows %+v", n)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The socket first sends the data in its buffer.
	f.gone("pid:" + x.pid())
	for _, p := range f.status().Programs {
		if p.Attached && needed[p.Name] {
			t.Errorf("%s is attached although no limit is left", p.Name)
		}
	}
}

// Data that a dead process left in its socket leave at the limit's rate. The limit ends once the socket is empty.
func TestClosedSocketDrains(t *testing.T) {
	t.Parallel()
	const size = 3_000_000
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
s = connect(sys.argv[1])
SO_SNDBUFFORCE = 32
s.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
say("ready")
wait()
s.sendall(bytes(int(sys.argv[2])))
`, f.to(a), itoa(size))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	begin := testbed.Now()
	x.tell("go")
	select {
	case <-x.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the program does not end")
	}
	ended := testbed.Now()
	from := ended.Add(settle) // one try: the backlog comes to an end
	f.near("draining", from, f.rate(from, from.Add(span), a), 1e6, 0.05)
	var n api.Node
	if !eventually(500*time.Millisecond, func() bool { // between two chunks the backlog is empty
		n = f.nodes()["pid:"+x.pid()]
		return n.Processes == 0 && n.Sockets == 1 && n.Up.WaitingBytes > 0
	}) {
		t.Errorf("a socket drains, ls shows %+v", n)
	}
	if !eventually(4*time.Second, func() bool { return f.rx.Bytes(a, testbed.Now()) == size }) {
		t.Errorf("%.0f bytes came of %d", f.rx.Bytes(a, testbed.Now()), size)
	}
	took := testbed.Now().Sub(begin)
	if took < 2500*time.Millisecond {
		t.Errorf("3 MB drained within %v at 1 MB/s", took)
	}
	f.gone("pid:" + x.pid())
}

// A process that happens to get the pid of a limited one is not limited. That holds even if no daemon ran that could
// notice the end of the limited process.
func TestReusedPID(t *testing.T) {
	// Not parallel: it chooses the next process id of the machine.
	const last = "/proc/sys/kernel/ns_last_pid"
	if w, err := os.OpenFile(last, os.O_WRONLY, 0); err == nil {
		_ = w.Close()
	} else if errors.Is(err, os.ErrNotExist) {
		t.Skip("this kernel does not let a pid be chosen (no " + last + ")")
	}
	f := newField(upStage(t))
	a := f.ports + 1
	b := a + 1
	first := f.send(testbed.SenderConfig{To: f.to(a)})
	f.must("set", "--pid", first.pid(), "--up", "5MB/s")
	f.holds("the first", testbed.Now(), 5e6, a)
	f.daemons[0].kill()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("the first process is there still: %v", err)
	}
	x := f.python(options{in: f.A}, `
want = int(sys.argv[1])
for _ in range(500):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(want - 1))
    pid = os.fork()
    if pid == 0:
        if os.getpid() != want:
            os._exit(0)
        wait()
        flood(connect(sys.argv[2]))
        os._exit(0)
    if pid == want:
        say("pid", pid)
        break
    os.wait()
else:
    say("pid", "none")
os.wait()
`, first.pid(), f.to(b))
	if got := x.read("pid"); got != first.pid() {
		t.Skipf("the pid %s could not be had again: others take it", first.pid())
	}
	x.tell("go")
	f.begins(b)
	f.free("another process of the same pid", testbed.Now(), freely, b)
	f.daemon()
	f.free("with a daemon again", testbed.Now(), freely, b)
	f.gone("pid:" + first.pid())
}
