package relay

import (
	"bytes"
	"encoding/json"
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

// Namespace is a network namespace: Do calls fn on a thread inside it.
type Namespace interface {
	Do(fn func() error) error
}

// Config configures a relay.
type Config struct {
	AtoB Path   `json:"a_to_b"`
	BtoA Path   `json:"b_to_a"`
	Seed uint64 `json:"seed"` // for loss and jitter: the same seed gives the same path
}

// RoundTrip returns a configuration with half of the round trip's time in each
// direction and nothing else.
func RoundTrip(rtt time.Duration) Config {
	return Config{AtoB: Path{Delay: rtt / 2}, BtoA: Path{Delay: rtt - rtt/2}}
}

func (c Config) check() error {
	if err := c.AtoB.check(); err != nil {
		return fmt.Errorf("path from A to B: %w", err)
	}
	if err := c.BtoA.check(); err != nil {
		return fmt.Errorf("path from B to A: %w", err)
	}
	return nil
}

// Relay is a running relay.
type Relay struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer

	mu  sync.Mutex // one order at a time
	out *json.Encoder
	in  *json.Decoder
}

// Start makes a TUN device of that name in each namespace, down and without
// addresses, and the process that joins them.
func Start(a, b Namespace, device string, c Config) (*Relay, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var files [2]*os.File
	defer func() {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}()
	for i, n := range []Namespace{a, b} {
		err := n.Do(func() error {
			var err error
			files[i], err = openTUN(device)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("make tun device %s: %w", device, err)
		}
	}
	r := new(Relay)
	r.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{processName}, Stderr: &r.stderr, ExtraFiles: files[:],
		// One thread does all the work. With the race detector it would wait for a second at its end.
		Env:         append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // the starting process handles Ctrl-C in a terminal
	}
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	r.stdin, r.out, r.in = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := r.Set(c); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// openTUN makes a TUN device in the caller's namespace. It exists as long as
// the file is open.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	const offload = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload); err != nil {
		return nil, errors.Join(fmt.Errorf("switch offload on: %w", err), f.Close())
	}
	return f, nil
}

// PID returns the pid of the relay process.
func (r *Relay) PID() int { return r.cmd.Process.Pid }

// Set changes the paths from now on; the seed and the memory stay.
func (r *Relay) Set(c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	_, err := r.ask(order{Set: &c})
	return err
}

// Counters returns the counts from A to B and from B to A.
func (r *Relay) Counters() (aToB, bToA Counters, err error) {
	a, err := r.ask(order{})
	return a.Counters[0], a.Counters[1], err
}

func (r *Relay) ask(o order) (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var a answer
	err := r.out.Encode(o)
	if err == nil {
		err = r.in.Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("relay (pid %d): %w", r.PID(), err)
	}
	return a, nil
}

// Close ends the process; the devices disappear with it. Closing twice is harmless.
func (r *Relay) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd.ProcessState != nil {
		return nil
	}
	r.stdin.Close()
	late := time.AfterFunc(2*time.Second, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("relay (pid %d): %w\n%s", r.PID(), err, r.stderr.Bytes())
	}
	return nil
}
