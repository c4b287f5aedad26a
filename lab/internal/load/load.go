// Package load runs programs that use processors, and returns the processor time that they got. It owns the
// programs; the experiments act on them.
package load

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/cpu"
)

// Kind is the kind of work of a program.
type Kind string

// These are the kinds.
const (
	Spin Kind = "spin"  // threads that calculate
	Fork Kind = "build" // a program that starts others, which calculate for some milliseconds each
)

const role = "NETNICE_LAB_LOAD"

// MaybeRun must be the first call of every program that uses Start: the process may be such a program.
func MaybeRun() {
	maybeCalculate()
	kind, threads, ok := strings.Cut(os.Getenv(role), ":")
	if !ok {
		return
	}
	n, _ := strconv.Atoi(threads)
	const share, short = 50 * time.Microsecond, 5 * time.Millisecond
	switch Kind(kind) {
	case Spin:
		runtime.GOMAXPROCS(max(n, 1))
		for range n - 1 {
			go spin(time.Duration(math.MaxInt64), share)
		}
		spin(time.Duration(math.MaxInt64), share)
	case Fork:
		for {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), role+"=short:1")
			if cmd.Run() != nil {
				os.Exit(1)
			}
		}
	case "short":
		spin(short, share)
	}
	os.Exit(0)
}

func spin(long, step time.Duration) {
	for begin := time.Now(); time.Since(begin) < long; {
		for at := time.Now(); time.Since(at) < step; {
			_ = math.Sqrt(float64(at.UnixNano()))
		}
	}
}

// Program is a running program.
type Program struct {
	Cmd  *exec.Cmd
	kind Kind
}

// Start starts a program in a session of its own, like daemons and terminals: the kernel's automatic groups would
// give the programs of one session one share together.
func Start(kind Kind, threads int) (*Program, error) {
	return start(kind, threads, syscall.SysProcAttr{Setsid: true})
}

// StartHere is Start in the session of this program, where nice values compare all programs.
func StartHere(kind Kind, threads, nice int) (*Program, error) {
	p, err := start(kind, threads, syscall.SysProcAttr{Setpgid: true})
	if err != nil {
		return nil, err
	}
	tids, err := threadsOf(p.PID())
	for _, tid := range tids {
		err = errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, tid, nice))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("give a load its priority: %w", err), p.Close())
	}
	return p, nil
}

func start(kind Kind, threads int, attr syscall.SysProcAttr) (*Program, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", role, kind, threads))
	cmd.SysProcAttr = &attr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a load: %w", err)
	}
	return &Program{cmd, kind}, nil
}

// PID returns its process id.
func (p *Program) PID() int { return p.Cmd.Process.Pid }

// Close ends the program with all its descendants.
func (p *Program) Close() error {
	if err := unix.Kill(-p.PID(), unix.SIGKILL); err != nil {
		return fmt.Errorf("end a load: %w", err)
	}
	_ = p.Cmd.Wait() // it was killed
	return nil
}

// Used returns the processor time that the program got, in seconds. It is exact for threads, and within some
// milliseconds for a program that starts others.
func (p *Program) Used() (sum float64, err error) {
	if p.kind == Spin {
		return Threads(p.PID()), nil
	}
	tree, err := cpu.Tree(p.PID())
	if err != nil {
		return 0, err
	}
	for _, pid := range tree {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // its parent has its time now
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		const first, last, hz = 11, 15, 100 // utime to cstime
		for _, field := range fields[first:last] {
			ticks, _ := strconv.ParseFloat(field, 64)
			sum += ticks / hz
		}
	}
	return sum, nil
}

func threadsOf(pid int) (tids []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// Threads returns the processor time that the threads of a process got, in seconds.
func Threads(pid int) float64 { return float64(cpu.ThreadsUsed(pid)) / 1e9 }
