// Package background starts this same program again, beside the command that runs: a daemon apart from its caller, with
// its environment, its priority and its log, and the guard of a daemon. It decides nothing about when, and knows no
// limit.
package background

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self is this very program, also after its file was replaced.
const Self = "/proc/self/exe"

// NameProcess makes ps, top and pgrep show the program as netnice, although it was started as Self.
func NameProcess() {
	_ = os.WriteFile("/proc/self/comm", []byte("netnice"), 0) // a failure costs nothing but the name
}

// StartError is the failure of a daemon that was started apart, in its own words.
type StartError struct {
	message, hint string
}

func (e *StartError) Error() string { return "start the daemon: " + e.message }

// Hint returns the remedy that the daemon named.
func (e *StartError) Hint() string { return e.hint }

// Start runs `netnice ARGS --background`, which starts the real process by Detach and ends. Therefore the real process
// is not a child of this one. `netnice run` limits its own process tree, and the command that it becomes would not
// expect a child that it did not start.
func Start(args []string, log string) (pid int, err error) {
	var out, problem bytes.Buffer
	cmd := exec.Cmd{
		Path:   Self,
		Args:   append(append([]string{"netnice"}, args...), "--background", "--log", log),
		Stdout: &out,
		Stderr: &problem,
	}
	if err := cmd.Run(); err != nil {
		message, hint, _ := strings.Cut(strings.TrimPrefix(problem.String(), "netnice: "), "\n")
		if message == "" {
			message = err.Error()
		}
		return 0, &StartError{message: message, hint: strings.TrimSpace(hint)}
	}
	pid, err = strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		return 0, fmt.Errorf("start the daemon: %w", err)
	}
	return pid, nil
}

// Detach starts this same program with args in a session of its own, in the root folder. The process has none of the
// caller's open files and little of its environment, and appends its output to log. Detach returns its process id.
func Detach(args []string, log string) (int, error) {
	out, err := openFile(log)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer null.Close()
	if err := closeOnExec(3); err != nil {
		return 0, err
	}
	process, err := os.StartProcess(Self, append([]string{"netnice"}, args...), &os.ProcAttr{
		Dir:   "/",
		Env:   environment(os.Environ()),
		Files: []*os.File{null, out, out},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", Self, err)
	}
	return process.Pid, nil
}

// closeOnExec marks every file from first on, so that a daemon does not hold
// the pipe of a caller that waits for its end.
func closeOnExec(first int) error {
	if unix.CloseRange(uint(first), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Before Linux 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open files: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// environment returns the variables of an environment that a daemon uses.
func environment(env []string) []string {
	var kept []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case name == "PATH", name == "LANG", name == "TZ", name == "JOURNAL_STREAM", strings.HasPrefix(name, "NETNICE_"), strings.HasPrefix(name, "GO"):
			kept = append(kept, entry)
		}
	}
	return kept
}
