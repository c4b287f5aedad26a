package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/netnice/netnice/internal/testbed"
)

// TrickleProgram is a Python program under trickle. trickle replaces functions of the C library that the lab's own
// senders and receivers do not use.
type TrickleProgram struct {
	Stdin  io.Writer
	Stdout *bufio.Reader
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// StartTrickle starts a program under trickle with one of its limits, -u or -d. The program gets an address and a
// port as arguments. StartTrickle waits for the line by which the program says that it is ready.
func StartTrickle(n *testbed.NetNS, limit string, bytesPerSec uint64, program string, at netip.AddrPort) (*TrickleProgram, error) {
	t := new(TrickleProgram)
	// Its limits are in units of 1024 bytes/s.
	t.cmd = exec.Command("trickle", "-s", limit, strconv.FormatUint(max(bytesPerSec>>10, 1), 10),
		"python3", "-c", program, at.Addr().String(), strconv.Itoa(int(at.Port())))
	t.cmd.Stderr = &t.stderr
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if t.Stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	t.Stdout = bufio.NewReader(out)
	if err := n.Start(t.cmd); err != nil {
		return nil, fmt.Errorf("start trickle: %w", err)
	}
	if _, err := t.Stdout.ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("trickle's program: %w", err), t.Close(), errors.New(t.stderr.String()))
	}
	return t, nil
}

// PID returns the pid of the process.
func (t *TrickleProgram) PID() int { return t.cmd.Process.Pid }

// Close ends the program.
func (t *TrickleProgram) Close() error {
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
