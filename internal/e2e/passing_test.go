package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

func words(line string) []string { return strings.Fields(line) }

// A connection is charged to the process that sends on it, whichever process made it. Here two processes pass a
// connection to and fro.
func TestDescriptorPassing(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
# The child is to be limited, the parent not. Both send while they have it.
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def take(channel):
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    return socket.socket(fileno=fds[0])

def give(channel, s):
    socket.send_fds(channel, [b"x"], [s.fileno()])
    s.close()

def send_until(s, asked):
    data = bytes(1 << 16)
    while not asked.is_set():
        s.sendall(data)

def turn(s, name):
    asked = threading.Event()
    s.sendall(b"x")  # from here on what is sent is this process's
    sender = threading.Thread(target=send_until, args=(s, asked))
    sender.start()
    say(name)
    return asked, sender

child = os.fork()
if child == 0:
    while True:
        s = take(theirs)
        asked, sender = turn(s, "child")
        theirs.recv(1)
        asked.set()
        sender.join()
        give(theirs, s)
say("pid", child)
s = connect(sys.argv[1])
for _ in range(2):
    asked, sender = turn(s, "parent")
    wait()
    asked.set()
    sender.join()
    give(ours, s)
    wait()
    ours.send(b"x")
    s = take(ours)
turn(s, "parent")
wait()
os.kill(child, 9)
os._exit(0)
`, f.to(a))
	child := x.read("pid")
	f.must("set", "--pid", child, "--up", "5MB/s")
	for range 2 {
		x.read("parent")
		f.free("sent by the unlimited one", testbed.Now(), freely, a)
		x.tell("give")
		x.read("child")
		time.Sleep(50 * time.Millisecond) // until the parent's last packets have reached the meter
		f.holds("sent by the limited one", testbed.Now(), 5e6, a)
		x.tell("take")
	}
	x.read("parent")
	f.free("sent by the unlimited one", testbed.Now(), freely, a)
}

// sendfile and splice send without a send call.
func TestSendfileAndSplice(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"sendfile": `
with open(sys.argv[2], "rb") as file:
    while True:
        os.sendfile(s.fileno(), file.fileno(), 0, 1 << 20)
`,
		"splice": `
r, w = os.pipe()
with open(sys.argv[2], "rb") as file:
    while True:
        n = os.splice(file.fileno(), w, 1 << 16, 0)
        while n > 0:
            n -= os.splice(r, s.fileno(), n)
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			f := newField(upStage(t))
			a := f.ports + 1
			// The connection belonged to another process before: only its use shows the change.
			x := f.python(options{in: f.A}, `
s = connect(sys.argv[1])
child = os.fork()
if child:
    say("pid", child)
    wait()
    os._exit(0)
time.sleep(0.3)
`+text, f.to(a), file)
			child := x.read("pid")
			f.must("set", "--pid", child, "--up", "5MB/s")
			f.begins(a)
			f.holds(name, testbed.Now().Add(100*time.Millisecond), 5e6, a)
		})
	}
}

// A web server's limit covers its downloads, on connections that it accepted before and after. Another server on
// the same machine has no limit.
func TestAccept(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("%v (apt-get install curl)", err)
	}
	const size = 6_000_000
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data"), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	f := newField(upStage(t))
	serve := func(port int) *script {
		x := f.script(options{in: f.A}, interpreter(t), "-u", "-m", "http.server", "--directory", dir, "--bind", f.A4.String(), strconv.Itoa(port))
		if !eventually(5*time.Second, func() bool {
			return f.run(exec.Command(curl, "-s", "-o", "/dev/null", "-I", fmt.Sprintf("http://%s:%d/data", f.A4, port)), f.B).code == 0
		}) {
			t.Fatal("the web server does not answer")
		}
		return x
	}
	fetch := func(port, parallel int) time.Duration {
		t.Helper()
		begin := testbed.Now()
		args := []string{"-s", "--fail", "--no-keepalive", "-Z", "--parallel-immediate"}
		for range parallel {
			args = append(args, "-o", "/dev/null", fmt.Sprintf("http://%s:%d/data", f.A4, port))
		}
		r := f.run(exec.Command(curl, args...), f.B)
		if r.code != 0 {
			t.Fatalf("curl: %v", r)
		}
		return r.at.Sub(begin)
	}
	quick := func(what string, port, parallel int) {
		t.Helper()
		for try := 1; ; try++ {
			begin := testbed.Now()
			took := fetch(port, parallel)
			if took <= 700*time.Millisecond {
				return
			}
			excuse := cpus.excuse(begin, testbed.Now())
			if try == 4 || excuse == "" {
				t.Errorf("a download %s takes %v", what, took)
				return
			}
			t.Logf("measured again: a download %s takes %v, but %s", what, took, excuse)
		}
	}
	limited, free := serve(8001), serve(8002)
	if free.cmd.Process.Pid == limited.cmd.Process.Pid {
		t.Fatal("one server instead of two")
	}
	f.must("set", "--pid", limited.pid(), "--up", "4MB/s")
	for _, parallel := range []int{1, 2} {
		begin := testbed.Now()
		took := fetch(8001, parallel)
		// The start of curl takes some 20 ms in addition to the 1.55 s for one file.
		f.near(fmt.Sprintf("%d downloads", parallel), begin, size*float64(parallel)*perByte/took.Seconds(), 4e6, 0.05)
		quick("from the unlimited server", 8002, parallel)
	}
	f.must("unset", "--pid", limited.pid())
	quick("after the limit", 8001, 2)
}

// iperf3 is a program that users have: its own figure confirms the limit.
func TestIperf(t *testing.T) {
	t.Parallel()
	iperf, err := exec.LookPath("iperf3")
	if err != nil {
		t.Skipf("%v (apt-get install iperf3)", err)
	}
	f := newField(upStage(t))
	f.script(options{in: f.B}, iperf, "-s", "-1", "-B", f.B4.String(), "--forceflush")
	time.Sleep(200 * time.Millisecond)
	cmd := exec.Command(netniceBinary, "run", "--up", "10MB/s", "--", iperf, "-c", f.B4.String(), "-t", "2", "-O", "1", "-P", "4", "-f", "K")
	begin := testbed.Now()
	r := f.run(cmd, f.A)
	var rate float64
	for line := range strings.Lines(r.out) {
		if strings.Contains(line, "SUM") && strings.Contains(line, "receiver") {
			fields := words(line)
			for i, word := range fields {
				if word == "KBytes/sec" {
					rate, _ = strconv.ParseFloat(fields[i-1], 64)
				}
			}
		}
	}
	if r.code != 0 || rate == 0 {
		t.Fatalf("iperf3: %v", r)
	}
	f.near("iperf3's own figure", begin, rate*1024*perByte, 10e6, 0.05)
}

// uring starts a program that sends to an address by io_uring, on request.
func (f *field) uring(to, how string) *script {
	f.t.Helper()
	x := f.script(options{in: f.A}, agentArgs(agentURing, to, how)...)
	if why := x.read("uring"); why != "ready" {
		f.t.Skipf("this kernel refuses io_uring: %s", why)
	}
	return x
}

// Only an io_uring ring holds the socket. netnice finds the socket when the limit is set, while a gigabyte is on the
// way.
func TestIOUringAlone(t *testing.T) {
	t.Parallel()
	for _, how := range testutil.Subset([]string{"fixed", "unseen"}, 1) {
		t.Run(how, func(t *testing.T) {
			f := newField(upStage(t))
			a := f.ports + 1
			x := f.uring(f.to(a), how)
			x.tell("go")
			f.begins(a)
			f.holds("by a ring alone", f.must("set", "--pid", x.pid(), "--up", "5MB/s").Add(100*time.Millisecond), 5e6, a)
			if wrong := x.wrong.String(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestIOUringAloneDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestIOUringAlone")
	t.Parallel()
	f := newField(upStage(t))
	x := f.uring(f.to(9), "datagrams")
	x.tell("go")
	time.Sleep(settle)
	f.must("set", "--pid", x.pid(), "--up", "3MB/s")
	f.contained(escape{least: 0.5, subject: "pid:" + x.pid()}, f.wire(), evadeLimit)
	if wrong := x.wrong.String(); wrong != "" {
		t.Error(wrong)
	}
}

// Another user has made a UDP socket, and only a ring of a limited process has it. Traffic on the socket counts for
// that process: it sends in its own call, or by a kernel thread.
func TestIOUringOfAnotherUsersSocket(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestIOUringAlone")
	t.Parallel()
	spare := newUsers()
	for _, how := range []string{"passed", "worked"} {
		t.Run(how, func(t *testing.T) {
			f := newField(upStage(t))
			name := testutil.RunName() + how
			x := f.uring(name, how)
			f.must("set", "--pid", x.pid(), "--up", "3MB/s")
			maker := f.python(options{in: f.A, uid: spare + 1}, `
host, _ = sys.argv[1].rsplit(":", 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as u:
    s.connect((host, 9))
    u.connect("\0" + sys.argv[2])
    socket.send_fds(u, [b"x"], [s.fileno()])
say("passed")
wait()
`, f.to(9), name)
			maker.read("passed")
			if what := x.read("uring"); what != "has" {
				t.Fatal(what)
			}
			x.tell("go")
			f.contained(escape{least: 0.5, subject: "pid:" + x.pid()}, f.wire(), evadeLimit)
			if wrong := x.wrong.String(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// io_uring sends from kernel threads.
func TestIOUring(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestIOUringAlone")
	// Not parallel: it has a kernel thread spin.
	for name, arg := range map[string]string{"submitted": "plain", "polled by a kernel thread": "sqpoll"} {
		t.Run(name, func(t *testing.T) {
			f := newField(upStage(t))
			a := f.ports + 1
			x := f.uring(f.to(a), arg)
			f.must("set", "--pid", x.pid(), "--up", "5MB/s")
			x.tell("go")
			f.begins(a)
			f.holds("io_uring", testbed.Now().Add(100*time.Millisecond), 5e6, a)
			f.free("lifted", f.must("unset", "--pid", x.pid()), 50e6, a)
			if bytes.Contains([]byte(x.wrong.String()), []byte("panic")) {
				t.Error(x.wrong.String())
			}
		})
	}
}
