package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// leaving is a way in which mallory tries to send faster than the administrator's limit. The program says "going"
// and sends to argv[1] for as long as it lives. All programs run at once, so together they may send the limit.
type leaving struct {
	name string
	text string
	// The program starts with the user id that uid returns, or as mallory if uid is nil.
	uid   func(h *hostile) uint32
	maps  bool                      // a user namespace of its own, to which root maps mallory and the ids of /etc/subuid
	start func(h *hostile) []string // a program instead of Python's
}

const (
	// libc is the head of programs that make system calls of their own.
	libc = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNET, NEWCGROUP, NEWPID = 0x10000000, 0x40000000, 0x02000000, 0x20000000
def call(f, *args):
    if f(*args) == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
def go():
    say("going")
`
	flooding1 = "go(); flood(connect(sys.argv[1]))"
)

func leavings() []leaving {
	return []leaving{
		{name: "four connections", text: "go()\nfor _ in range(3):\n    threading.Thread(target=lambda: flood(connect(sys.argv[1])), daemon=True).start()\nflood(connect(sys.argv[1]))"},
		{name: "new processes all the time", text: `
go()
while True:
    if os.fork() == 0:
        s = connect(sys.argv[1])
        s.settimeout(0.2)
        flood(s)
        os._exit(0)
    time.sleep(0.05)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0: break
        except ChildProcessError:
            break
`},
		{name: "a new session", text: `
first = os.getpid()
call(libc.prctl, 36, 1, 0, 0, 0) # to be the parent of orphans, which end with it
if os.fork():
    time.sleep(600)
os.setsid()
if os.fork():
    os._exit(0)
while os.getppid() != first:
    time.sleep(0.01)
call(libc.prctl, 1, signal.SIGKILL, 0, 0, 0)
` + flooding1},
		{name: "a user namespace", text: "call(libc.unshare, NEWUSER)\n" + flooding1},
		{name: "root in a user namespace", maps: true, text: "os.setresuid(0, 0, 0)\n" + flooding1},
		{name: "another id in a user namespace", maps: true, text: "os.setresuid(2, 2, 2)\n" + flooding1},
		{name: "another id in a namespace within", maps: true, text: `
os.setresuid(3, 3, 3)
call(libc.unshare, NEWUSER)
` + flooding1},
		{name: "a setuid program of another id", uid: func(h *hostile) uint32 { return h.sub + 1 }, text: flooding1},
		{name: "a setuid program of root's", start: setuidPython, text: flooding1},
		{name: "a socket taken to other namespaces", text: "s = connect(sys.argv[1])\ncall(libc.unshare, NEWUSER | NEWNET | NEWCGROUP)\ngo(); flood(s)"},
		{name: "a socket passed on", text: `
a, b = socket.socketpair()
if os.fork() == 0:
    s = socket.fromfd(socket.recv_fds(b, 1, 1)[1][0], socket.AF_INET, socket.SOCK_STREAM)
    go(); flood(s)
s = connect(sys.argv[1])
socket.send_fds(a, [b"x"], [s.fileno()])
time.sleep(600)
`},
		{name: "a process that is traced", text: `
pid = os.fork()
if pid == 0:
    call(libc.ptrace, 0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    go(); flood(connect(sys.argv[1]))
os.waitpid(pid, 0)
while True:
    call(libc.ptrace, 7, pid, None, None)
    os.waitpid(pid, 0)
`},
		{name: "socket options", text: `
s = socket.socket()
for level, name, value in (socket.SOL_SOCKET, 47, b"\xff" * 8), (6, 7001, struct.pack("Q", 1 << 62)), (socket.SOL_SOCKET, socket.SO_SNDBUF, struct.pack("i", 1 << 28)), (6, 13, b"reno"):
    try: s.setsockopt(level, name, value)
    except OSError: pass
host, port = sys.argv[1].rsplit(":", 1)
s.connect((host, int(port)))
go()
threading.Thread(target=flood, args=(s,), daemon=True).start()
while True:
    try: s.setsockopt(socket.SOL_SOCKET, 47, b"\xff" * 8)
    except OSError: pass
    time.sleep(0.001)
`},
		{name: "own limits in each other", text: asks + `
go()
depth = 0
while depth < 12:
    pid = os.fork()
    if pid:
        time.sleep(600)
    depth += 1
    ask("PUT", "/v1/limits", up("pid", str(os.getpid()), 1 << 62))
flood(connect(sys.argv[1]))
`},
		{name: "own limits around each other", text: asks + `
go()
pids = [os.getpid()]
for _ in range(12):
    pid = os.fork()
    if pid:
        time.sleep(600)
    pids.append(os.getpid())
for pid in reversed(pids):
    ask("PUT", "/v1/limits", up("pid", str(pid), 1 << 62))
flood(connect(sys.argv[1]))
`},
		{name: "a limit of one's own that comes and goes", text: asks + `
threading.Thread(target=lambda: flood(connect(sys.argv[1])), daemon=True).start()
go()
while True:
    ask("PUT", "/v1/limits", up("pid", str(os.getpid()), 1 << 62))
    ask("DELETE", f"/v1/limits?subject=pid:{os.getpid()}")
    time.sleep(0.05)
`},
	}
}

// setuidPython is an interpreter with root's rights and mallory's real id.
func setuidPython(h *hostile) []string { return setuidOf(h, 0) }

// setuidOther is an interpreter with the rights of an id that /etc/subuid gives to mallory.
func setuidOther(h *hostile) []string { return setuidOf(h, h.sub+3) }

// setuidOf makes an interpreter that has the rights of the user that owns its file.
func setuidOf(h *hostile, uid uint32) []string {
	h.t.Helper()
	path := filepath.Join(filepath.Dir(h.home), "python-"+itoa(uid))
	from, err := os.Open(interpreter(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		h.t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chown(path, int(uid), int(uid)); err != nil { // chown would remove the setuid bit
		h.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		h.t.Fatal(err)
	}
	return []string{path}
}

// begin starts an attempt, and returns when it sends.
func (h *hostile) begin(l leaving, port uint16) *script {
	h.t.Helper()
	uid := h.mallory
	if l.uid != nil {
		uid = l.uid(h)
	}
	file, err := os.CreateTemp(work, "*.py")
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	text := prelude + libc
	if l.maps {
		text += "call(libc.unshare, NEWUSER)\nsay(\"map\")\nwait()\n"
	}
	if _, err := file.WriteString(text + l.text + "\ntime.sleep(600)\n"); err != nil {
		h.t.Fatal(err)
	}
	if err := file.Chmod(0o644); err != nil {
		h.t.Fatal(err)
	}
	args := []string{interpreter(h.t)}
	if l.start != nil {
		args = l.start(h)
	}
	x := h.script(options{in: h.A, uid: uid}, append(args, "-u", file.Name(), h.to(port))...)
	if l.maps {
		x.read("map")
		// newuidmap does the same for the user that has these ids.
		for _, name := range []string{"uid_map", "gid_map"} {
			maps := fmt.Sprintf("0 %d 1\n1 %d 4\n", h.mallory, h.sub)
			if err := os.WriteFile("/proc/"+x.pid()+"/"+name, []byte(maps), 0); err != nil {
				h.t.Fatal(err)
			}
		}
		x.tell("mapped")
	}
	return x
}

// All of mallory's attempts together stay within the administrator's limit.
func TestHostileTraffic(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestGenerated and TestHostileCommands")
	// Not parallel: it floods the machine.
	spare := newUsers()
	h := newHostile(t, spare, "")
	list := leavings()
	running := make([]*script, len(list))
	var ports []uint16
	for i, l := range list {
		port := testbed.DefaultPort + uint16(i)
		ports = append(ports, port)
		running[i] = h.begin(l, port)
	}
	for _, x := range running {
		x.read("going")
	}
	time.Sleep(time.Second)
	from := testbed.Now()
	to := from.Add(3 * time.Second)
	all := h.rate(from, to, ports...) / malloryLimit
	t.Logf("together %.3f of the limit", all)
	for i, l := range list {
		h.attempt(t, l.name, func(h *hostile) {
			got := h.rate(from, to, ports[i]) / malloryLimit
			h.t.Logf("%.3f of the limit", got)
			if got > 1.03 {
				h.t.Errorf("%.3f of the limit", got)
			}
			if got < 0.003 {
				h.t.Errorf("%.4f of the limit: there was no attempt\n%s", got, running[i].wrong.String())
			}
		})
	}
	h.attempt(t, "together", func(h *hostile) {
		if all > 1.03 || all < 0.9 && !excused(h.t, from, to) {
			h.t.Errorf("together %.3f of the limit", all)
		}
	})
	for _, x := range running {
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
	}
	t.Run("without a daemon", func(t *testing.T) {
		h.d.kill()
		x := h.begin(leaving{text: flooding1}, ports[0])
		y := h.begin(leaving{maps: true, text: "os.setresuid(2, 2, 2)\n" + flooding1}, ports[1])
		x.read("going")
		y.read("going")
		time.Sleep(500 * time.Millisecond)
		if got := h.sent(time.Second, malloryLimit, ports[0], ports[1]); got > 1.05 || got < 0.3 && !excused(t, to, testbed.Now()) {
			t.Errorf("%.3f of the limit", got)
		}
	})
}

// A user has an id of /etc/subuid, and so may run a program of that id. The program makes a user namespace outside
// of all others. Its maker is then that id and not mallory.
func TestHostileNamespaceOfAnotherID(t *testing.T) {
	testutil.SkipUnlessAll(t, "internal/daemon TestSubordinatesCountAsOne")
	// Not parallel, as above.
	h := newHostile(t, newUsers(), "")
	const text = "call(libc.unshare, NEWUSER)\n" + flooding1
	list := []leaving{
		{name: "by a setuid program", start: setuidOther, text: text},
		{name: "by the id itself", uid: func(h *hostile) uint32 { return h.sub + 2 }, text: text},
	}
	for i, l := range list {
		h.attempt(t, l.name, func(h *hostile) {
			port := testbed.DefaultPort + uint16(i)
			x := h.begin(l, port)
			defer x.close()
			x.read("going")
			time.Sleep(time.Second)
			from := testbed.Now()
			if got := h.sent(2*time.Second, malloryLimit, port); got > 1.05 || got < 0.9 && !excused(h.t, from, testbed.Now()) {
				h.t.Errorf("%.3f of the limit", got)
			}
		})
	}
}

// A process tree may be deeper than the number of parents that netnice checks.
func TestHostileDeepTree(t *testing.T) {
	t.Parallel()
	spare := newUsers()
	f := newField(upStage(t))
	port := f.ports + 1
	x := f.python(options{in: f.A, uid: spare + 23}, `
first = os.getpid()
for _ in range(200):
    if os.fork():
        time.sleep(600)
say("ready", first)
wait()
flood(connect(sys.argv[1]))
`, f.to(port))
	root := x.read("ready")
	f.must("set", "--pid", root, "--up", "1MB/s")
	x.tell("go")
	f.begins(port)
	f.holds("200 generations below", testbed.Now().Add(200*time.Millisecond), 1e6, port)
	if n := f.nodes()["pid:"+root]; n.Processes != 201 {
		t.Errorf("%d members", n.Processes)
	}
}
