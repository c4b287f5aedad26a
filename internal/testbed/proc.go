package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answerWithin bounds the wait for a traffic process to answer. A connection
// under a very low limit that must share with others may need seconds to open.
const answerWithin = 30 * time.Second

// proc is a traffic process seen from the program that started it.
type proc struct {
	cmd   *exec.Cmd
	stdin io.Closer
	wire  *wire
	role  string

	mu      sync.Mutex // one order at a time
	answers chan report
	ended   chan struct{} // closed after the wait for the process
	waitErr error         // exit status; valid once ended is closed
	stderr  bytes.Buffer
}

// startProc starts this program again as a traffic process in the namespace (nil = the caller's) and sends it its
// configuration. Unrequested reports go to unasked, from one goroutine.
func startProc(n *NetNS, role string, uid uint32, first order, unasked func(report)) (*proc, error) {
	p := &proc{role: role, answers: make(chan report, 1), ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path:   "/proc/self/exe", // readable for every user that the child runs as
		Args:   []string{trafficName, role},
		Stderr: &p.stderr,
		// A child with the race detector would wait for a second at its end.
		Env: append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
		SysProcAttr: &syscall.SysProcAttr{
			Setpgid: true, // this process handles Ctrl-C in a terminal
		},
	}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		// Users other than root need the capability to choose any congestion control.
		p.cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	start := p.cmd.Start
	if n != nil {
		start = func() error { return n.Start(p.cmd) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	p.stdin, p.wire = stdin, newWire(stdout, stdin)
	go p.read(unasked)
	if _, err := p.ask(first, sawReady); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// read sorts the reports until the process ends.
func (p *proc) read(unasked func(report)) {
	defer close(p.ended)
	for {
		var r report
		if err := p.wire.in.Decode(&r); err != nil {
			break
		}
		switch r.Saw {
		case sawSample, sawConn, sawPoints, sawDone:
			unasked(r)
		default:
			p.answers <- r
		}
	}
	p.waitErr = p.cmd.Wait()
}

// ask gives an order and waits for its answer.
func (p *proc) ask(o order, want string) (report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.wire.write(o); err != nil {
		return report{}, p.fault(fmt.Errorf("order %s: %w", o.Do, err))
	}
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	select {
	case r := <-p.answers:
		return p.check(r, want)
	case <-p.ended:
		select { // a last report may have come at the same time
		case r := <-p.answers:
			return p.check(r, want)
		default:
		}
		return report{}, p.fault(fmt.Errorf("ended during order %s", o.Do))
	case <-timer.C:
		return report{}, p.fault(fmt.Errorf("no answer to order %s within %v", o.Do, answerWithin))
	}
}

func (p *proc) check(r report, want string) (report, error) {
	if r.Saw == sawError {
		return r, p.fault(errors.New(r.Error))
	}
	if r.Saw != want {
		return r, p.fault(fmt.Errorf("answered %q instead of %q", r.Saw, want))
	}
	return r, nil
}

// fault names the process in an error and adds its exit status, if it has ended.
func (p *proc) fault(err error) error {
	err = fmt.Errorf("%s (pid %d): %w", p.role, p.cmd.Process.Pid, err)
	select {
	case <-p.ended:
		if p.stderr.Len() > 0 {
			return fmt.Errorf("%w\n%s", err, p.stderr.Bytes())
		}
	default:
	}
	return err
}

// close ends the process and waits for it. Closing twice is harmless.
func (p *proc) close() error {
	_ = p.stdin.Close() // it is closed already, or no longer needed
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		if err := p.cmd.Process.Kill(); err != nil {
			return p.fault(err)
		}
		<-p.ended
	}
	return nil
}
