package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// All descendants of a limited program share its limit. In each case the program first waits for its limit, then two
// senders start.
func TestFamilySharesLimit(t *testing.T) {
	t.Parallel()
	for name, text := range testutil.SubsetOf(map[string]string{
		"fork": `
wait()
for to in sys.argv[1:]:
    if os.fork() == 0:
        flood(connect(to))
        os._exit(0)
say("going")
wait()
`,
		// subprocess starts its children by vfork and exec.
		"vfork and exec": `
wait()
for to in sys.argv[1:]:
    subprocess.Popen([sys.executable, "-c", """
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
s = socket.create_connection((host, int(port)))
while True: s.sendall(bytes(65536))
""", to])
say("going")
wait()
`,
		"threads": `
wait()
for to in sys.argv[1:]:
    threading.Thread(target=lambda to=to: flood(connect(to)), daemon=True).start()
say("going")
wait()
`,
		// The thread that calls exec takes the leader's place.
		"exec from a thread": `
again = """
import os, socket, sys
def connect(to):
    host, port = to.rsplit(":", 1)
    return socket.create_connection((host, int(port)))
a, b = sys.argv[1:]
s = connect(a if os.fork() else b)
while True: s.sendall(bytes(65536))
"""
wait()
say("going")
threading.Thread(target=lambda: os.execv(sys.executable, [sys.executable, "-c", again] + sys.argv[1:])).start()
wait()
`,
		// A grandchild whose parent has ended is by then a child of init.
		"double fork": `
wait()
for to in sys.argv[1:]:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        while os.getppid() == os.getpgid(0):
            time.sleep(0.01)
        os.closerange(0, 3)  # or the test would wait for it; it ends with the receiver
        flood(connect(to))
        os._exit(0)
    os.wait()
say("going")
wait()
`,
	}, "vfork and exec", "exec from a thread", "double fork") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(upStage(t))
			a := f.ports + 1
			b := a + 1
			x := f.python(options{in: f.A}, text, f.to(a), f.to(b))
			f.must("set", "--pid", x.pid(), "--up", "8MB/s")
			x.tell("go")
			x.read("going")
			f.begins(a)
			f.begins(b)
			f.holds("together", testbed.Now(), 8e6, a, b)
			if ra, rb := f.rx.Bytes(a, testbed.Now()), f.rx.Bytes(b, testbed.Now()); ra == 0 || rb == 0 {
				t.Errorf("%.0f and %.0f bytes came: one of them did not send", ra, rb)
			}
		})
	}
}

// begins waits until data arrive at a port.
func (f *field) begins(port uint16) {
	f.t.Helper()
	if !eventually(20*time.Second, func() bool { return f.rx.Bytes(port, testbed.Now()) > 0 }) {
		f.t.Fatalf("nothing comes to port %d", port)
	}
}

// A process tree exists already when its limit is set. The limit covers also its threads, its orphans and the
// processes that it has forked.
func TestFamilyAdopted(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A}, `
def sender(to):
    s = connect(to)
    say("ready")
    flood(s)
if os.fork() == 0:
    if os.fork() == 0:
        sender(sys.argv[2])
    sender(sys.argv[3])
threading.Thread(target=sender, args=(sys.argv[1],), daemon=True).start()
wait()
`, f.to(a), f.to(b), f.to(c))
	for range 3 {
		x.read("ready")
	}
	time.Sleep(100 * time.Millisecond)
	at := f.must("set", "--pid", x.pid(), "--up", "6MB/s")
	f.holds("adopted", at, 6e6, a, b, c)
	if n := f.nodes()["pid:"+x.pid()]; n.Processes != 3 || n.Sockets != 3 {
		t.Errorf("%d processes with %d sockets, want 3 and 3", n.Processes, n.Sockets)
	}
}

// A limit on a process covers neither its sibling nor its parent.
func TestFamilyEndsAtItsRoot(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	b, c := a+1, a+2
	x := f.python(options{in: f.A}, `
pids = []
for to in sys.argv[1:3]:
    pid = os.fork()
    if pid == 0:
        flood(connect(to))
        os._exit(0)
    pids.append(pid)
say("pids", *pids)
flood(connect(sys.argv[3]))
`, f.to(a), f.to(b), f.to(c))
	pids := words(x.read("pids"))
	time.Sleep(100 * time.Millisecond)
	at := f.must("set", "--pid", pids[0], "--up", "5MB/s")
	f.holds("the limited one", at, 5e6, a)
	f.free("its sibling", at, 50e6, b)
	f.free("its parent", at, 50e6, c)
}

// A child inherits its parent's connections. A limit on the child, which does not use them, does not hold them. The
// limit covers a connection that the child uses itself, although the parent has it open, too.
func TestInheritedConnection(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
s = connect(sys.argv[1])
pid = os.fork()
if pid == 0:
    signal.pause()
say("child", pid)
flood(s)
`, f.to(a))
	child := x.read("child")
	time.Sleep(100 * time.Millisecond)
	// A held connection would take longer than this to drain its buffer.
	f.free("the parent's connection", f.must("set", "--pid", child, "--up", "100kB/s"), 50e6, a)

	y := f.python(options{in: f.B}, `
listener = socket.create_server(("", 8003))
say("ready")
s, _ = listener.accept()
wait()
n, end = 0, time.monotonic() + 1
while (left := end - time.monotonic()) > 0:
    s.settimeout(left)
    try:
        n += len(s.recv(1 << 20))
    except TimeoutError:
        pass
say("bytes", n)
`)
	y.read("ready")
	z := f.python(options{in: f.A}, `
s = connect(sys.argv[1])
pid = os.fork()
if pid == 0:
    s.send(bytes(1 << 28))
say("child", pid)
wait()
`, f.to(8003))
	child = z.read("child")
	time.Sleep(200 * time.Millisecond) // until it sleeps
	f.must("set", "--pid", child, "--up", "1MB/s")
	y.tell("go")
	// Data sent before have filled the receiver's buffer, 6 MB at most.
	n := instant(t, y.read("bytes"))
	t.Logf("%d bytes came through the connection that the child uses, in a second at 1 MB/s", n)
	if n > 8e6 {
		t.Error("the child's connection is not held")
	}
}
