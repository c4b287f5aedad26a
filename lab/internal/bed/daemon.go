package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/prometheus/procfs"

	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/testbed"
)

// Daemon is a netnice daemon for this experiment only. It is down at first.
type Daemon struct {
	Client *client.Client // for calls to the daemon
	Flags  []string       // additional flags of its next start

	command testbed.Command
	dir     string // folder of the socket and the state
	pins    string
	process *exec.Cmd
	log     bytes.Buffer
}

// within bounds the start and the end of the daemon.
const within = 20 * time.Second

// NewDaemon returns a daemon that runs that netnice program. Close ends it.
func NewDaemon(program string) (*Daemon, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("find netnice: %w (make build, or -netnice PROGRAM)", err)
	}
	dir, err := os.MkdirTemp("", "netnice-lab-")
	if err != nil {
		return nil, fmt.Errorf("make folder for the daemon: %w", err)
	}
	d := &Daemon{
		command: testbed.Command{Path: program}, dir: dir,
		pins: "/sys/fs/bpf/netnice-lab-" + strconv.Itoa(os.Getpid()),
	}
	d.Client = client.New(d.Socket())
	return d, nil
}

// Socket returns the path of the daemon's socket.
func (d *Daemon) Socket() string { return filepath.Join(d.dir, "socket") }

// Program returns the netnice program's path.
func (d *Daemon) Program() string { return d.command.Path }

// Up starts the daemon and waits until it answers. It has no effect if the daemon is up.
func (d *Daemon) Up(ctx context.Context) error { return d.UpIn(ctx, nil) }

// UpIn is Up inside a namespace (nil = here). The daemon limits ingress in its own namespace.
func (d *Daemon) UpIn(ctx context.Context, n *testbed.NetNS) error {
	if d.process != nil {
		return nil
	}
	d.log.Reset()
	d.process = exec.Command(d.command.Path, "daemon", "--socket", d.Socket(),
		"--state-dir", filepath.Join(d.dir, "state"), "--pin-dir", d.pins)
	d.process.Args = append(d.process.Args, d.Flags...)
	d.process.Env = append(os.Environ(), testbed.Beside) // no flag: benches also measure older releases
	d.process.Stderr = &d.log
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // this process handles Ctrl-C
	if err := startIn(n, d.process); err != nil {
		d.process = nil
		return fmt.Errorf("start the daemon: %w", err)
	}
	for deadline := time.Now().Add(within); ; {
		_, err := d.Client.Status(ctx)
		if err == nil {
			return nil
		}
		if !errors.Is(err, client.ErrNoDaemon) || time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("wait for the daemon: %w\n%s", err, &d.log), d.Down(ctx))
		}
		if err := testbed.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// Down lifts every limit and ends the daemon. It has no effect if the daemon is down.
func (d *Daemon) Down(ctx context.Context) error {
	if d.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	err := d.Client.Down(ctx)
	d.Client.Close()
	ended := make(chan error, 1)
	go func() { ended <- d.process.Wait() }()
	select {
	case end := <-ended:
		err = errors.Join(err, end)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err(), d.process.Process.Kill(), <-ended)
	}
	d.process = nil
	if err != nil {
		return fmt.Errorf("end the daemon: %w\n%s", err, &d.log)
	}
	return nil
}

// Switch starts or ends the daemon.
func (d *Daemon) Switch(ctx context.Context, on bool) error {
	if on {
		return d.Up(ctx)
	}
	return d.Down(ctx)
}

// Close ends the daemon and removes its folder.
func (d *Daemon) Close() error {
	return errors.Join(d.Down(context.Background()), os.RemoveAll(d.dir))
}

// Netnice runs the netnice program with these arguments, for this daemon.
func (d *Daemon) Netnice(ctx context.Context, args ...string) ([]byte, error) {
	return d.command.Output(ctx, append([]string{"--socket", d.Socket()}, args...)...)
}

// Release returns the netnice program's release.
func (d *Daemon) Release(ctx context.Context) (string, error) {
	text, err := d.command.Output(ctx, "version", "--json")
	if err != nil {
		return "", err
	}
	var v struct {
		Release string `json:"release"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return "", fmt.Errorf("decode netnice's version: %w", err)
	}
	return v.Release, nil
}

// NetniceIn is Netnice in a namespace, to whose devices the names refer.
func (d *Daemon) NetniceIn(ctx context.Context, n *testbed.NetNS, args ...string) ([]byte, error) {
	var out []byte
	err := n.Do(func() (err error) {
		out, err = d.Netnice(ctx, args...)
		return err
	})
	return out, err
}

// Reserve reserves a slice of a pair's device for a process, on top of a limit on the device.
func (d *Daemon) Reserve(ctx context.Context, n *testbed.NetNS, pid int, period, slice time.Duration, extra bool) error {
	args := []string{"reserve", "--pid", strconv.Itoa(pid), "--link", testbed.Device, "--period", period.String(), "--slice", slice.String()}
	if extra {
		args = append(args, "--extra")
	}
	_, err := d.NetniceIn(ctx, n, args...)
	return err
}

// LimitPID limits the egress of a process and its children, as users do.
func (d *Daemon) LimitPID(ctx context.Context, pid int, bytesPerSec uint64) error {
	_, err := d.Netnice(ctx, "set", "--pid", strconv.Itoa(pid), "--up", fmt.Sprintf("%dB/s", bytesPerSec))
	return err
}

// LimitDownPID limits the ingress of a process and its children.
func (d *Daemon) LimitDownPID(ctx context.Context, pid int, bytesPerSec uint64) error {
	_, err := d.Netnice(ctx, "set", "--pid", strconv.Itoa(pid), "--down", fmt.Sprintf("%dB/s", bytesPerSec))
	return err
}

// LimitUser limits the egress of all processes of a user together.
func (d *Daemon) LimitUser(ctx context.Context, uid uint32, bytesPerSec uint64) error {
	_, err := d.Netnice(ctx, "set", "--user", strconv.Itoa(int(uid)), "--up", fmt.Sprintf("%dB/s", bytesPerSec))
	return err
}

// CPU returns the CPU seconds that the daemon has used so far.
func (d *Daemon) CPU() (float64, error) {
	if d.process == nil {
		return 0, errors.New("the daemon is down")
	}
	process, err := procfs.NewProc(d.process.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("find the daemon: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the daemon's CPU time: %w", err)
	}
	return stat.CPUTime(), nil
}

// Quiet waits until the daemon uses no more CPU time, 10 s at most: the daemon loads programs in the background
// before they are needed.
func (d *Daemon) Quiet(ctx context.Context) error {
	const (
		look = 200 * time.Millisecond
		idle = 0.02 // seconds of CPU time, two of the clock's ticks
	)
	before := 0.0
	for range 10 * time.Second / look {
		if err := testbed.Sleep(ctx, look); err != nil {
			return err
		}
		now, err := d.CPU()
		if err != nil {
			return err
		}
		if now-before < idle {
			return nil
		}
		before = now
	}
	return nil // the daemon has lasting work; the figures show it
}

// Cost holds the kernel's counts for one of the daemon's programs. The kernel counts only while its statistics are
// on (ebpf.EnableStats).
type Cost struct {
	Runs uint64        `json:"runs"`
	Time time.Duration `json:"time_ns"`
}

// Costs returns the cost of each attached program since it was loaded, by its pin's name.
func (d *Daemon) Costs() (map[string]Cost, error) {
	paths, err := filepath.Glob(filepath.Join(d.pins, "link_*"))
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	costs := make(map[string]Cost)
	for _, path := range paths {
		c, err := cost(path)
		if err != nil {
			return nil, fmt.Errorf("read statistics of %s: %w", path, err)
		}
		costs[strings.TrimPrefix(filepath.Base(path), "link_")] = c
	}
	return costs, nil
}

func cost(pin string) (Cost, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return Cost{}, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return Cost{}, err
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return Cost{}, err
	}
	defer program.Close()
	stats, err := program.Stats()
	if err != nil {
		return Cost{}, err
	}
	return Cost{Runs: stats.RunCount, Time: stats.Runtime}, nil
}

// Sub returns the costs since an earlier reading.
func Sub(now, earlier map[string]Cost) map[string]Cost {
	d := make(map[string]Cost)
	for name, c := range now {
		d[name] = Cost{Runs: c.Runs - earlier[name].Runs, Time: c.Time - earlier[name].Time}
	}
	return d
}
