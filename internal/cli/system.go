package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/background"
	"github.com/netnice/netnice/internal/identity"
)

// System is the interface of commands to the machine. Tests replace it.
type System interface {
	EUID() int
	PID() int
	ParentPID() int
	// Inherited returns a variable of the environment of this process, or of the nearest process around it that has one.
	Inherited(name string) string
	// ProcessName returns the command name of a process; the error is
	// fs.ErrNotExist where there is none.
	ProcessName(pid int) (string, error)
	// Alive reports whether a process exists and has a thread that runs.
	Alive(pid int) bool
	DaemonFinder
	LookPath(name string) (string, error)
	// Exec becomes the command; it returns only on failure.
	Exec(path string, argv []string) error
	// StartDetached runs this same program with args, apart from the caller's
	// session and process tree, its output appended to log.
	StartDetached(args []string, log string) (pid int, err error)
	// HasService reports whether systemd runs here and has the service of netnice, which runs this very program and
	// listens on this socket.
	HasService(ctx context.Context, socket string) bool
	// StartService makes systemd start that service, or, with again, restart it, and returns when it is ready.
	StartService(ctx context.Context, again bool) error
	// Pins reports whether limits are in the kernel, pinned below dir. The error is fs.ErrPermission if the caller may
	// not look.
	Pins(dir string) (bool, error)
	// Processes lists the processes of the machine with their names.
	Processes() ([]identity.ProcessInfo, error)
	// Containers lists the containers of the machine's engines, also those that do not run.
	Containers() ([]identity.Container, error)
	// Names lists the users, units or network devices that exist, for completion.
	Names(kind api.Kind) ([]string, error)
	// Terminal returns the size of the terminal behind out in cells, 0 if out is no terminal.
	Terminal(out io.Writer) (width, height int)
}

// DaemonFinder finds a daemon that does not answer. The kernel knows its process by the files that it has locked.
type DaemonFinder interface {
	// Daemon finds the netnice daemon of a place; false if there is none, or if that cannot be told.
	Daemon(at DaemonPlace) (RunningDaemon, bool)
	// SignalDaemon sends a daemon a signal, if it still is the daemon of the place.
	SignalDaemon(r RunningDaemon, signal syscall.Signal, at DaemonPlace) error
}

// DaemonPlace holds what a daemon has locked: the place of its socket, and its folders.
type DaemonPlace struct{ Socket, StateDir, PinDir string }

// RunningDaemon is a daemon that was found.
type RunningDaemon struct {
	PID int
	// Socket is the socket that it listens on, by its command line; "" = unknown.
	Socket string
}

// Machine is the System of a real machine. Beside what finds the daemon it has no state.
type Machine struct{ DaemonFinder }

// EUID returns the effective user id.
func (Machine) EUID() int { return os.Geteuid() }

// PID returns this process's id.
func (Machine) PID() int { return os.Getpid() }

// ParentPID returns the id of the process that called netnice.
func (Machine) ParentPID() int { return os.Getppid() }

// Inherited reads /proc/PID/environ of this process and of its ancestors, as far as the caller may.
func (Machine) Inherited(name string) string {
	r, err := identity.New(identity.Options{})
	if err != nil {
		return ""
	}
	return r.InheritedVariable(os.Getpid(), name)
}

// ProcessName reads /proc/PID/comm.
func (Machine) ProcessName(pid int) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if errors.Is(err, unix.ESRCH) { // the process ended while its name was read
		err = fs.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("read the name of process %d: %w", pid, err)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// Alive looks at the state of a process and at its threads. A killed process of several threads is a zombie as soon as
// its first thread has ended. It holds its files and locks until the last thread has ended.
func (Machine) Alive(pid int) bool { return identity.Runs(pid) }

// LookPath finds a command as a shell does; a "." in PATH counts.
func (Machine) LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	return path, err
}

// Exec calls execve with the present environment.
func (Machine) Exec(path string, argv []string) error {
	return unix.Exec(path, argv, os.Environ())
}

// StartDetached starts the process by way of a second one.
func (Machine) StartDetached(args []string, log string) (int, error) {
	return background.Start(args, log)
}

// serviceName is the unit that the packages and make install provide.
const serviceName = "netnice.service"

// HasService asks systemd.
func (Machine) HasService(ctx context.Context, socket string) bool {
	systemd := identity.SystemBus{}
	if socket != client.DefaultSocket || !systemd.Running() {
		return false
	}
	path, err := systemd.Program(ctx, serviceName)
	if err != nil {
		return false // there is no service, or that cannot be told: the command starts the daemon by itself then
	}
	its, err := os.Stat(path)
	if err != nil {
		return false
	}
	own, err := os.Stat(background.Self)
	return err == nil && os.SameFile(its, own)
}

// StartService asks systemd.
func (Machine) StartService(ctx context.Context, again bool) error {
	return identity.SystemBus{}.StartService(ctx, serviceName, again)
}

// Pins looks for anything below dir.
func (Machine) Pins(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for pins: %w", err)
	}
	return len(entries) > 0, nil
}

// Processes reads /proc.
func (Machine) Processes() ([]identity.ProcessInfo, error) {
	r, err := identity.New(identity.Options{})
	if err != nil {
		return nil, fmt.Errorf("look at processes: %w", err)
	}
	return r.ProcessTable()
}

// Containers reads the cgroup tree and the files of container engines.
func (Machine) Containers() ([]identity.Container, error) {
	r, err := identity.New(identity.Options{})
	if err != nil {
		return nil, fmt.Errorf("look for containers: %w", err)
	}
	return r.Containers()
}

// Names reads /etc/passwd or the cgroup tree, or asks the kernel for its devices.
func (Machine) Names(kind api.Kind) ([]string, error) {
	switch kind {
	case api.KindUser:
		return account.Machine().Names(), nil
	case api.KindUnit:
		r, err := identity.New(identity.Options{})
		if err != nil {
			return nil, fmt.Errorf("look for units: %w", err)
		}
		return r.Units()
	case api.KindLink:
		devices, err := net.Interfaces()
		if err != nil {
			return nil, fmt.Errorf("list network devices: %w", err)
		}
		var names []string
		for _, d := range devices {
			if d.Flags&net.FlagLoopback == 0 {
				names = append(names, d.Name)
			}
		}
		return names, nil
	}
	return nil, nil
}

// Terminal asks the terminal.
func (Machine) Terminal(out io.Writer) (width, height int) {
	file, ok := out.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
