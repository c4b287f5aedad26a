// Command vminit is the first process of a test machine. It mounts the file systems that a program expects, loads
// kernel modules, and runs one program. It sends the program's output and status to the host over a serial line, and
// powers the machine off. It refuses to run as anything but process 1.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil/vm/wire"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vminit: only as the first process of a test machine")
		os.Exit(125)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "vminit:", err) // the console
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "vminit: power off:", err)
	}
	select {}
}

func run() error {
	if err := mountBase(); err != nil {
		return err
	}
	tty, err := openData(wire.DataTTY)
	if err != nil {
		return err
	}
	host := wire.NewWriter(tty)
	note := func(format string, args ...any) { _ = host.Send(wire.Note, fmt.Appendf(nil, format, args...)) }

	var job wire.Job
	text, err := os.ReadFile(wire.JobPath)
	if err == nil {
		err = json.Unmarshal(text, &job)
	}
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	for _, m := range job.Modules {
		if err := loadModule(m); err != nil {
			note("%v", err)
		}
	}
	prepare(job, note)
	if err := host.Send(wire.Ready, nil); err != nil {
		return err
	}
	status := runJob(job, host)
	for _, name := range job.Fetch {
		f := wire.FileFrame{Path: name}
		if f.Data, err = os.ReadFile(name); err != nil {
			f.Err = err.Error()
		}
		if err := host.SendJSON(wire.File, f); err != nil {
			return err
		}
	}
	if err := host.SendJSON(wire.Exit, status); err != nil {
		return err
	}
	return drain(tty)
}

// openData opens the serial line for bytes that nothing rewrites.
func openData(name string) (*os.File, error) {
	// Not os.OpenFile: the line must stay in blocking mode.
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read settings of %s: %w", name, err)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("change settings of %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// drain waits until the line has sent everything.
func drain(tty *os.File) error {
	if err := unix.IoctlSetInt(int(tty.Fd()), unix.TCSBRK, 1); err != nil {
		return fmt.Errorf("drain serial line: %w", err)
	}
	return nil
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("load module: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	parameters := ""
	if filepath.Base(file) == "dummy.ko" {
		parameters = "numdummies=0" // creates no device by itself
	}
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", file, err)
	}
	return nil
}

// runJob runs the program and reaps every orphan until it ends.
func runJob(job wire.Job, host *wire.Writer) wire.Status {
	stdout, stderr := newRelay(host, wire.Stdout), newRelay(host, wire.Stderr)
	if err := errors.Join(stdout.err, stderr.err); err != nil {
		return wire.Status{Code: 125, Err: err.Error()}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return wire.Status{Code: 125, Err: err.Error()}
	}
	env := append([]string{
		"PATH=/bin", "HOME=/root", "USER=root", "TERM=dumb", "TMPDIR=/tmp",
		"NETNICE_VM=1", "NETNICE_MUST_RUN_PRIVILEGED=1",
	}, job.Env...)
	start := time.Now()
	pid, err := syscall.ForkExec(job.Argv[0], job.Argv, &syscall.ProcAttr{
		Dir:   job.Dir,
		Env:   env,
		Files: []uintptr{null.Fd(), stdout.write.Fd(), stderr.write.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return wire.Status{Code: 126, Err: err.Error()}
	}
	stdout.write.Close() //nolint:errcheck // the program holds it now
	stderr.write.Close() //nolint:errcheck // the program holds it now
	var late atomic.Bool
	limit := time.AfterFunc(max(1, time.Duration(job.Seconds))*time.Second, func() {
		late.Store(true)
		_ = unix.Kill(pid, unix.SIGQUIT)
		time.Sleep(2 * time.Second)
		_ = unix.Kill(pid, unix.SIGKILL)
	})
	status := wire.Status{Code: reap(pid), Millis: time.Since(start).Milliseconds()}
	limit.Stop()
	if late.Load() {
		status.Err = fmt.Sprintf("not done after %d s", job.Seconds)
	}
	// Processes that the program left may hold the pipes open for ever.
	deadline := time.Now().Add(time.Second)
	stdout.finish(deadline)
	stderr.finish(deadline)
	return status
}

// reap collects children until pid ends and returns its exit status.
func reap(pid int) int {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 125
		case got != pid:
		case ws.Signaled():
			return 128 + int(ws.Signal())
		case ws.Exited():
			return ws.ExitStatus()
		}
	}
}

// relay sends to the host the data that the program writes to a pipe.
type relay struct {
	read, write *os.File
	done        chan struct{}
	err         error
}

func newRelay(host *wire.Writer, kind wire.Kind) *relay {
	r := &relay{done: make(chan struct{})}
	if r.read, r.write, r.err = os.Pipe(); r.err != nil {
		return r
	}
	go func() {
		defer close(r.done)
		buffer := make([]byte, 32<<10)
		for {
			n, err := r.read.Read(buffer)
			if n > 0 && host.Send(kind, buffer[:n]) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

// finish waits for the pipe's end, at most until deadline.
func (r *relay) finish(deadline time.Time) {
	_ = r.read.SetReadDeadline(deadline)
	<-r.done
}
