package delay

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

// processName is the argv[0] that tells this program to run as one of a cell's programs.
const processName = "netnice-delays"

// After its duties, a program of a cell gets these orders, a line each. A reply answers each line.
const (
	doStart  = "start"  // begin with all duties
	doStop   = "stop"   // ask and fetch no more; the rival traffic goes on
	doReport = "report" // report the trips so far
)

// reply answers a line.
type reply struct {
	Error string `json:"error,omitempty"`
	Seen  seen   `json:"seen"`
}

// MaybeRun turns the process into one of a cell's programs if it was started as one, and then never
// returns. It is called before flags are parsed.
func MaybeRun() {
	if len(os.Args) != 1 || os.Args[0] != processName {
		return
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := serve(in, out); !errors.Is(err, io.EOF) { // EOF: the starting process is gone
		_ = out.Encode(reply{Error: err.Error()}) // if it fails, no process reads it
		os.Exit(1)
	}
	os.Exit(0)
}

// serve does the duties that the first line names, until something fails.
func serve(in *json.Decoder, out *json.Encoder) error {
	var d duties
	if err := in.Decode(&d); err != nil {
		return err
	}
	r, err := newRole(d)
	if err != nil {
		return err
	}
	if err := out.Encode(reply{}); err != nil {
		return err
	}
	for {
		var do string
		if err := in.Decode(&do); err != nil {
			return err
		}
		switch do {
		case doStart:
			err = r.start()
		case doStop:
			r.stopped.Store(true)
		case doReport:
		default:
			err = fmt.Errorf("a program of a cell does not know the order %q", do)
		}
		if err == nil {
			err = r.failure()
		}
		if err != nil {
			return err
		}
		if err := out.Encode(reply{Seen: r.report()}); err != nil {
			return err
		}
	}
}

// program is one of a cell's programs, seen from the bench.
type program struct {
	cmd   *exec.Cmd
	stdin io.Closer
	in    *json.Encoder
	out   *json.Decoder
}

// startProgram starts this program again in the namespace, as a user if uid is not 0. It returns once the program's
// sockets listen. The program does nothing else before doStart.
func startProgram(n *testbed.NetNS, uid uint32, d duties) (*program, error) {
	p := &program{cmd: &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{processName}, Stderr: os.Stderr, Env: os.Environ(),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // Ctrl-C in a terminal is the bench's to handle
	}}
	if uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a program: %w", err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a program: %w", err)
	}
	if err := n.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start a program: %w", err)
	}
	p.stdin, p.in, p.out = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if _, err := p.tell(d); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// tell gives the program a line and waits for its reply.
func (p *program) tell(line any) (seen, error) {
	var a reply
	err := p.in.Encode(line)
	if err == nil {
		err = p.out.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return seen{}, fmt.Errorf("program %d: %w", p.cmd.Process.Pid, err)
	}
	return a.Seen, nil
}

// Close ends the program. Closing twice is harmless.
func (p *program) Close() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.stdin.Close()      // it is closed already, or no longer needed
	_ = p.cmd.Process.Kill() // it may be blocked in a call
	if _, err := p.cmd.Process.Wait(); err != nil {
		return fmt.Errorf("end program %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}
