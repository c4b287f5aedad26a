package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// spare is a user that no machine has.
const spare uint32 = 64123

// perByte is what IP and TCP add to a byte of payload on the way from A to B,
// whose segments have 1448 bytes.
const perByte = 1 + 52.0/1448

// field is a pair of namespaces with a receiver in B that counts by port.
type field struct {
	*stage
	*testutil.Pair
	rx    *testutil.Receiver
	ports uint16 // handed out
}

// newField makes a field around a stage. Ports 5001..5016 read, port 5050
// answers requests of 600 bytes with 100.
func newField(s *stage) *field {
	s.t.Helper()
	f := &field{stage: s, Pair: testutil.MustPair(s.t), ports: testutil.DefaultPort - 1}
	cfg := testutil.ReceiverConfig{Interval: 10 * time.Millisecond}
	for i := range uint16(16) {
		cfg.Ports = append(cfg.Ports, testutil.Port{Number: testutil.DefaultPort + i})
	}
	cfg.Ports = append(cfg.Ports, testutil.Port{Number: requestPort, RequestBytes: 600, ReplyBytes: 100})
	f.rx = f.receiver(f.B, cfg)
	return f
}

const requestPort = 5050

func (f *field) receiver(in *testutil.NetNS, cfg testutil.ReceiverConfig) *testutil.Receiver {
	f.t.Helper()
	rx, err := testutil.StartReceiver(in, cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = rx.Close() })
	return rx
}

// flow is a sender and the port that it sends to.
type flow struct {
	*testutil.Sender
	f    *field
	port uint16
}

// sender starts a sending process in A that is not connected yet.
func (f *field) sender(cfg testutil.SenderConfig) *flow {
	f.t.Helper()
	f.ports++
	x := &flow{f: f, port: f.ports}
	switch {
	case cfg.Mode == testutil.Request:
		x.port = requestPort
		cfg.To = fmt.Sprintf("%s:%d", f.B4, x.port)
	case cfg.To == "":
		cfg.To = fmt.Sprintf("%s:%d", f.B4, x.port)
	case cfg.To == "6":
		cfg.To = fmt.Sprintf("[%s]:%d", f.B6, x.port)
	}
	var err error
	if x.Sender, err = testutil.StartSender(f.A, cfg); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = x.Close() })
	return x
}

// send is a sender that sends already.
func (f *field) send(cfg testutil.SenderConfig) *flow {
	f.t.Helper()
	x := f.sender(cfg)
	x.begin()
	return x
}

func (x *flow) begin() testutil.Instant {
	x.f.t.Helper()
	at, err := x.Start()
	if err != nil {
		x.f.t.Fatal(err)
	}
	return at
}

func (x *flow) pid() string { return itoa(x.PID()) }

// rate is what came to ports, in IP bytes per second, between two instants; it
// waits until they are over.
func (f *field) rate(from, to testutil.Instant, ports ...uint16) float64 {
	f.until(to.Add(15 * time.Millisecond)) // the sample behind it
	sum := 0.0
	for _, p := range ports {
		sum += f.rx.Goodput(p, from, to)
	}
	return sum * perByte
}

func (f *field) until(at testutil.Instant) {
	if left := at.Sub(testutil.Now()); left > 0 {
		time.Sleep(left)
	}
}

// settle is how long after a command its new rate is looked at: netnice
// promises 100 ms, and the receiver counts every 10.
const settle = 150 * time.Millisecond

// span is how long a rate is measured.
const span = 1500 * time.Millisecond

// errTooFast is a rate above its limit, for which there is no excuse.
var errTooFast = errors.New("faster than its limit")

// compare returns an error if a rate is not at its limit; tolerance is relative.
func compare(what string, got, want, tolerance float64) error {
	switch {
	case got > want*(1+tolerance):
		return fmt.Errorf("%s: %.0f IP bytes/s, want %.0f +- %.0f%%: %w", what, got, want, tolerance*100, errTooFast)
	case got < want*(1-tolerance):
		return fmt.Errorf("%s: %.0f IP bytes/s, want %.0f +- %.0f%%", what, got, want, tolerance*100)
	}
	return nil
}

// judge looks at a window that begins when a command that returned at some
// instant has to be in force. What falls short while others take the machine's
// CPUs is looked at again.
func (f *field) judge(after testutil.Instant, length time.Duration, look func(from, to testutil.Instant) error) {
	f.t.Helper()
	const tries = 4
	for try := 1; ; try++ {
		from := after.Add(settle)
		to := from.Add(length)
		err := look(from, to)
		if err == nil {
			return
		}
		busy := cpus.busy(from, to)
		if try == tries || busy < 0.9 || errors.Is(err, errTooFast) {
			f.t.Errorf("%v (CPUs %.0f%% busy)", err, 100*busy)
			return
		}
		f.t.Logf("%v, but the CPUs were %.0f%% busy: once more", err, 100*busy)
		after = testutil.Now()
	}
}

// holds checks the rate of ports, together, for span after a command that
// returned at some instant.
func (f *field) holds(what string, after testutil.Instant, limit float64, ports ...uint16) {
	f.t.Helper()
	f.holdsFor(what, after, span, limit, 0.05, ports...)
}

// holdsFor is holds for another time than span, or with another tolerance.
func (f *field) holdsFor(what string, after testutil.Instant, length time.Duration, limit, tolerance float64, ports ...uint16) {
	f.t.Helper()
	f.judge(after, length, func(from, to testutil.Instant) error {
		got := f.rate(from, to, ports...)
		f.t.Logf("%s: %.3f of %.0f bytes/s", what, got/limit, limit)
		return compare(what, got, limit, tolerance)
	})
}

// near checks a rate that was measured otherwise, from some instant to now.
func (f *field) near(what string, since testutil.Instant, got, want, tolerance float64) {
	f.t.Helper()
	f.t.Logf("%s: %.3f of %.0f bytes/s", what, got/want, want)
	err := compare(what, got, want, tolerance)
	switch busy := cpus.busy(since, testutil.Now()); {
	case err == nil:
	case busy >= 0.9 && !errors.Is(err, errTooFast):
		f.t.Logf("%v: says nothing, since the CPUs were %.0f%% busy", err, 100*busy)
	default:
		f.t.Errorf("%v (CPUs %.0f%% busy)", err, 100*busy)
	}
}

// free checks that ports, together, are far above a limit that was lifted.
func (f *field) free(what string, after testutil.Instant, above float64, ports ...uint16) {
	f.t.Helper()
	got := f.rate(after.Add(settle), after.Add(settle+400*time.Millisecond), ports...)
	f.t.Logf("%s: %.0f MB/s", what, got/1e6)
	if got < above {
		f.t.Errorf("%s: %.0f IP bytes/s, want more than %.0f", what, got, above)
	}
}

// script is a running program of a test whose output is read line by line.
type script struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	ended chan struct{}
	err   error // how it ended
	wrong lockedBuffer
}

// options of a script.
type options struct {
	in     *testutil.NetNS
	uid    uint32
	cgroup string   // folder to start in
	under  []string // a command before the program, for instance netnice run
}

// python starts a Python program with arguments. It ends with the test at the
// latest, with all its children.
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

// prelude is at the head of every Python program.
const prelude = `
import errno, os, signal, socket, struct, subprocess, sys, threading, time

def connect(to):
    host, port = to.rsplit(":", 1)
    return socket.create_connection((host.strip("[]"), int(port)))

def flood(s, data=bytes(1 << 16)):
    try:
        while True:
            s.sendall(data)
    except OSError:
        pass

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())

def wait():
    return sys.stdin.readline().strip()
`

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
	x.cmd.Stderr = &x.wrong
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o.uid != 0 {
		x.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.uid}
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
	s.t.Cleanup(x.close)
	return x
}

// close ends the program and everything in its process group.
func (x *script) close() {
	_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL) // none left is as good
	_ = x.stdin.Close()
	select {
	case <-x.ended:
	case <-time.After(5 * time.Second):
		x.t.Errorf("%q does not end", x.cmd.Args)
	}
	if text := x.wrong.String(); text != "" && x.t.Failed() {
		x.t.Logf("%q said:\n%s", x.cmd.Args, text)
	}
}

// read returns the next line that the program prints, without its first word,
// which has to be the one that is waited for.
func (x *script) read(word string) string {
	x.t.Helper()
	select {
	case line, ok := <-x.lines:
		got, rest, _ := strings.Cut(line, " ")
		if !ok || got != word {
			x.t.Fatalf("the program printed %q, want %q\n%s", line, word, x.wrong.String())
		}
		return rest
	case <-time.After(15 * time.Second):
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

// to is the address of a port in B.
func (f *field) to(port uint16) string { return fmt.Sprintf("%s:%d", f.B4, port) }
