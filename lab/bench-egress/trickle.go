package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/bench"
)

// trickle replaces functions of the C library, which our own senders do not
// use: it gets a Python program that does what they do with one connection.
type trickle struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
}

// It overlooks sockets that are made with SOCK_CLOEXEC, which Python's all are
// unless the C library is called directly.
const trickleProgram = `
import ctypes, socket, sys
s = socket.socket(fileno=ctypes.CDLL(None).socket(socket.AF_INET, socket.SOCK_STREAM, 0))
s.connect((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
sys.stdin.readline()
b = bytes(65536)
while True: s.sendall(b)
`

// startTrickle starts the program, which connects and waits.
func startTrickle(s *bench.Site, bytesPerSec uint64) (*trickle, error) {
	t := new(trickle)
	// -u is in units of 1024 bytes/s.
	t.cmd = exec.Command("trickle", "-s", "-u", strconv.FormatUint(max(bytesPerSec>>10, 1), 10),
		"python3", "-c", trickleProgram, s.To.String(), strconv.Itoa(bench.FirstPort))
	t.cmd.Stderr = &t.stderr
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	if err := s.Pair.A.Start(t.cmd); err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("trickle's program: %w", err), t.Close())
	}
	return t, nil
}

// PID of the process.
func (t *trickle) PID() int { return t.cmd.Process.Pid }

// Connect has nothing to do: the program has connected.
func (t *trickle) Connect() error { return nil }

// Start lets the program send.
func (t *trickle) Start() (testutil.Instant, error) {
	if _, err := io.WriteString(t.stdin, "\n"); err != nil {
		return 0, fmt.Errorf("trickle's program: %w", err)
	}
	return testutil.Now(), nil
}

// RTT is not known: its socket cannot be asked.
func (t *trickle) RTT(testutil.Instant, testutil.Instant) []time.Duration { return nil }

// Stop ends the program, which says nothing; its connection is a usual one.
func (t *trickle) Stop() (testutil.SenderReport, error) {
	conns := []testutil.ConnInfo{{MSS: 1448, Timestamps: true}}
	return testutil.SenderReport{PID: t.PID(), Conns: conns}, t.Close()
}

// Close ends the program.
func (t *trickle) Close() error {
	if t.cmd.ProcessState != nil {
		return nil
	}
	if err := t.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("end trickle: %w", err)
	}
	var killed *exec.ExitError
	if err := t.cmd.Wait(); err != nil && !errors.As(err, &killed) {
		return fmt.Errorf("end trickle: %w\n%s", err, t.stderr.Bytes())
	}
	return nil
}
