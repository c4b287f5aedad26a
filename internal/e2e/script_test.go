package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// script is a running program of a test; the test reads its output line by line.
type script struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	ended chan struct{}
	err   error // its exit status
	wrong lockedBuffer
	once  sync.Once
}

// options are the options of a script.
type options struct {
	in     *testbed.NetNS
	uid    uint32
	cgroup string   // folder to start in
	under  []string // a command before the program, for instance netnice run
	env    []string // environment; nil = that of the tests
}

// python starts a Python program with arguments. The program ends with the test at the latest, with all its
// children.
func (s *stage) python(o options, text string, args ...string) *script {
	s.t.Helper()
	file, err := os.CreateTemp(work, "*.py")
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	if err := file.Chmod(0o644); err != nil {
		s.t.Fatal(err)
	}
	if _, err := file.WriteString(prelude + text); err != nil {
		s.t.Fatal(err)
	}
	return s.script(o, append([]string{interpreter(s.t), "-u", file.Name()}, args...)...)
}

// prelude is the head of every Python program, also of those of trafficgen.
const prelude = `
import errno, os, signal, socket, struct, subprocess, sys, threading, time

def checksum(b):
    n = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while n >> 16:
        n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff

def connect(to):
    host, port = to.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)))

def flood(s, data=bytes(1 << 16), up_to=100e6):
    due = 0
    try:
        while True:
            s.sendall(data)
            now = time.monotonic()
            due = max(due, now - 0.01) + len(data) / up_to
            if due > now + 0.001:
                time.sleep(due - now)
    except OSError:
        pass

def attach_filter(s):
    # One instruction that lets all through: it takes some of the memory that a socket has for options.
    import ctypes
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xffff))
    s.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))  # SO_ATTACH_FILTER

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())

def wait():
    return sys.stdin.readline().strip()
`

// countsRead is the head of a program that says how many bytes it has read, and when, as it is asked.
const countsRead = `
got = 0
def report():
    while wait():
        say("got", got, time.monotonic())
threading.Thread(target=report, daemon=True).start()
`

// got asks a program for the bytes that it has read, and the time. The program has countsRead, or answers as that does.
func (x *script) got() (bytes, at float64) {
	x.t.Helper()
	x.tell("how much")
	if _, err := fmt.Sscan(x.read("got"), &bytes, &at); err != nil {
		x.t.Fatal(err)
	}
	return bytes, at
}

// interpreter finds a Python that users other than root may run, too.
func interpreter(t *testing.T) string {
	t.Helper()
	const usual = "/usr/bin/python3"
	if _, err := os.Stat(usual); err == nil {
		return usual
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v (apt-get install python3)", err)
	}
	return path
}

// script starts a program on the stage.
func (s *stage) script(o options, args ...string) *script {
	s.t.Helper()
	args = append(append([]string{}, o.under...), args...)
	x := &script{t: s.t, cmd: exec.Command(args[0], args[1:]...), lines: make(chan string, 1000), ended: make(chan struct{})}
	x.cmd.Stderr, x.cmd.Env = &x.wrong, o.env
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.uid != 0 {
		x.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.uid}
	}
	if o.cgroup == "" {
		o.cgroup = s.root
	}
	if o.cgroup != "" {
		dir, err := os.Open(o.cgroup)
		if err != nil {
			s.t.Fatal(err)
		}
		defer dir.Close()
		x.cmd.SysProcAttr.UseCgroupFD, x.cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	var err error
	if x.stdin, err = x.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if slices.Contains(o.under, netniceBinary) {
		s.account.runs(o.in)
	}
	if err := s.start(x.cmd, o.in); err != nil {
		s.t.Fatalf("start %q: %v", args, err)
	}
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			x.lines <- in.Text()
		}
		close(x.lines)
		x.err = x.cmd.Wait()
		close(x.ended)
	}()
	s.account.adds(o.in, program{pid: x.cmd.Process.Pid, uid: o.uid, cgroup: o.cgroup, group: true})
	s.t.Cleanup(func() {
		s.settleAccount()
		x.close()
	})
	return x
}

// close ends the program and everything in its process group, whose number may later belong to another group.
func (x *script) close() { x.once.Do(x.kill) }

func (x *script) kill() {
	_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL) // the group may be gone already
	_ = x.stdin.Close()
	select {
	case <-x.ended:
	case <-time.After(timeoutScale * 20 * time.Second): // 5 were once too few while a busy loop ran
		x.t.Errorf("%q does not end", x.cmd.Args)
	}
	if text := x.wrong.String(); text != "" && x.t.Failed() {
		x.t.Logf("%q said:\n%s", x.cmd.Args, text)
	}
}

// read returns the program's next line without its first word, which has to be word.
func (x *script) read(word string) string {
	x.t.Helper()
	select {
	case line, ok := <-x.lines:
		got, rest, _ := strings.Cut(line, " ")
		if !ok || got != word {
			x.t.Fatalf("the program printed %q, want %q\n%s", line, word, x.wrong.String())
		}
		return rest
	case <-time.After(timeoutScale * 40 * time.Second):
		x.t.Fatalf("the program does not print %q\n%s", word, x.wrong.String())
	}
	return ""
}

// tell gives the program a line to read.
func (x *script) tell(line string) {
	x.t.Helper()
	if _, err := io.WriteString(x.stdin, line+"\n"); err != nil {
		x.t.Fatalf("tell the program %q: %v\n%s", line, err, x.wrong.String())
	}
}

func (x *script) pid() string { return itoa(x.cmd.Process.Pid) }
