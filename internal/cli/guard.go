package cli

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// guard is the command of a process that the daemon starts for itself. People have no use for it, so --help does not
// show it.
func (a *App) guard() *cobra.Command {
	var where daemonFlags
	cmd := &cobra.Command{
		Use:    "guard",
		Short:  "Outlive the daemon, which starts it, and see to what that leaves",
		Hidden: true,
		Args:   between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A signal to all processes of the daemon's unit would end the guard too early.
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			return a.Parts.Guard(cmd.Context(), DaemonOptions{PinDir: a.PinDir, CgroupRoot: where.cgroupRoot})
		},
	}
	where.add(a, cmd)
	return cmd
}

// guardProcess is a running guard. It acts when the pipe closes; the kernel closes the pipe if this process is killed.
type guardProcess struct {
	pipe *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when the guard has ended
}

// guardWait is the time after which a guard is killed, some hundred times the time that it takes.
const guardWait = 5 * time.Second

func startGuard(pinDir, cgroupRoot string) (*guardProcess, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer in.Close()
	g := &guardProcess{pipe: out, done: make(chan struct{}), cmd: &exec.Cmd{
		Path:  self,
		Args:  []string{"netnice", "guard", "--pin-dir=" + pinDir, "--cgroup-root=" + cgroupRoot},
		Env:   append(daemonEnvironment(os.Environ()), "GOMAXPROCS=1"),
		Stdin: in, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}}
	if err := g.cmd.Start(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	go func() {
		_ = g.cmd.Wait() // the guard writes its errors to the log
		close(g.done)
	}()
	return g, nil
}

// Alive implements pacing.Guard.
func (g *guardProcess) Alive() bool {
	select {
	case <-g.done:
		return false
	default:
		return true
	}
}

// Close implements pacing.Guard.
func (g *guardProcess) Close() error {
	err := g.pipe.Close()
	select {
	case <-g.done:
	case <-time.After(guardWait):
		_ = g.cmd.Process.Kill() // an error says that the guard has ended meanwhile
		<-g.done
	}
	return err
}
