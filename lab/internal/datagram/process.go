// Package datagram has a process that sends UDP as fast as it may, or at a rate. A second process records the
// arriving datagrams with their times. Neither knows their limits.
package datagram

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/netnice/netnice/internal/testbed"
)

// processName is the argv[0] that tells a program to run as one of these processes.
const processName = "netnice-datagrams"

// config is the first line to a process.
type config struct {
	Listen string  `json:"listen,omitempty"` // receiver: address and port
	To     string  `json:"to,omitempty"`     // sender: address and port
	Bytes  int     `json:"bytes,omitempty"`  // payload bytes of a datagram
	Rate   float64 `json:"rate,omitempty"`   // payload bytes/s; 0 = as fast as it may
	Remote bool    `json:"remote,omitempty"`
}

// order is each further line to a process, and answer is the reply. The reply to the configuration is empty.
type order struct {
	Start    bool            `json:"start,omitempty"` // sender: start to send
	From, To testbed.Instant // receiver: report the datagrams between the two
	Group    int             // group size of the gaps
}

type answer struct {
	Error   string   `json:"error,omitempty"`
	Sent    Sent     `json:"sent"`
	Arrived Arrivals `json:"arrived"`
}

// MaybeRun turns the process into a sender or a receiver if it was started as one, and then never returns. A program
// must call it before it parses flags.
func MaybeRun() {
	if len(os.Args) != 1 || os.Args[0] != processName {
		return
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := run(in, out); !errors.Is(err, io.EOF) { // EOF: the starting process is gone
		_ = out.Encode(answer{Error: err.Error()}) // if it fails, no process reads it
		os.Exit(1)
	}
	os.Exit(0)
}

// run goes on until an operation fails: the process that started it ends it.
func run(in *json.Decoder, out *json.Encoder) error {
	var c config
	if err := in.Decode(&c); err != nil {
		return err
	}
	if c.To != "" {
		return runSender(c, in, out)
	}
	return runReceiver(c, in, out)
}

// process is one of these processes, as its starter sees it.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	in    *json.Encoder
	out   *json.Decoder
}

// start starts this program again in the namespace, as a user if uid is not 0.
func start(n *testbed.NetNS, uid uint32, c config) (*process, error) {
	p := &process{cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{processName}, Stderr: os.Stderr, Env: os.Environ(),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // the starter handles Ctrl-C in a terminal
	}}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start datagrams: %w", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start datagrams: %w", err)
	}
	if err := n.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start datagrams: %w", err)
	}
	p.stdin, p.in, p.out = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if _, err := p.ask(c); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// ask gives an order and waits for its answer.
func (p *process) ask(line any) (a answer, err error) {
	if err := p.in.Encode(line); err != nil {
		return a, fmt.Errorf("datagrams (pid %d): %w", p.PID(), err)
	}
	if err := p.out.Decode(&a); err != nil {
		return a, fmt.Errorf("datagrams (pid %d): %w", p.PID(), err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("datagrams (pid %d): %s", p.PID(), a.Error)
	}
	return a, nil
}

// PID returns the pid of the process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Close ends the process. Closing twice is harmless.
func (p *process) Close() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.stdin.Close()      // it is closed already, or no longer needed
	_ = p.cmd.Process.Kill() // it may be blocked in a call
	_, err := p.cmd.Process.Wait()
	if err != nil {
		return fmt.Errorf("end datagrams (pid %d): %w", p.PID(), err)
	}
	return nil
}
