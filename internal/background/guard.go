package background

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Guard is a running guard: a process that outlives the daemon. It acts when the pipe closes; the kernel closes the
// pipe if this process is killed.
type Guard struct {
	pipe *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when the guard has ended
}

// guardWait is the time after which a guard is killed, some hundred times the time that it takes.
const guardWait = 5 * time.Second

// StartGuard starts `netnice guard` for the daemon with these folders.
func StartGuard(pinDir, cgroupRoot string) (*Guard, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer in.Close()
	g := &Guard{pipe: out, done: make(chan struct{}), cmd: &exec.Cmd{
		Path:  Self,
		Args:  []string{"netnice", "guard", "--pin-dir=" + pinDir, "--cgroup-root=" + cgroupRoot},
		Env:   append(environment(os.Environ()), "GOMAXPROCS=1"),
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

// Alive reports whether the guard still runs.
func (g *Guard) Alive() bool {
	select {
	case <-g.done:
		return false
	default:
		return true
	}
}

// Close ends the guard, and waits for its end.
func (g *Guard) Close() error {
	err := g.pipe.Close()
	select {
	case <-g.done:
	case <-time.After(guardWait):
		_ = g.cmd.Process.Kill() // an error says that the guard has ended meanwhile
		<-g.done
	}
	return err
}
