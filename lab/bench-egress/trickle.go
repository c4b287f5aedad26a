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

	"github.com/netnice/netnice/internal/testutil"
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
func startTrickle(s *site, bytesPerSec uint64) (*trickle, error) {
	t := new(trickle)
	// -u is in units of 1024 bytes/s.
	t.cmd = exec.Command("trickle", "-s", "-u", strconv.FormatUint(max(bytesPerSec>>10, 1), 10),
		"python3", "-c", trickleProgram, s.to.String(), strconv.Itoa(testutil.DefaultPort))
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
	if err := s.pair.A.Start(t.cmd); err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("trickle's program: %w", err), t.close())
	}
	return t, nil
}

// start lets the program send.
func (t *trickle) start() error {
	if _, err := io.WriteString(t.stdin, "\n"); err != nil {
		return fmt.Errorf("trickle's program: %w", err)
	}
	return nil
}

// close ends the program.
func (t *trickle) close() error {
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
