package testutil

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
)

// runVariable is in the environment of all processes that a test program starts. It holds the process id of the
// program's supervisor.
const runVariable = "NETNICE_TEST_RUN"

// Supervise runs this test program in a process of its own, and waits for it. It then ends the processes that the
// program leaves, after a panic, a kill or Ctrl-C too. It first ends the processes of earlier runs whose supervisor
// was killed, too. It returns in the inner process only. TestMain calls it first, after the checks for other roles
// of the test program.
func Supervise() {
	if os.Getenv(runVariable) != "" || Privileged() != nil {
		return // without root a test leaves no such process
	}
	code, err := supervise()
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervise the tests:", err)
		code = 1
	}
	os.Exit(code)
}

func supervise() (code int, err error) {
	runtime.LockOSThread() // PDEATHSIG is about this thread
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("adopt what the tests leave: %w", err)
	}
	endLeftovers(func(run int) bool { return !identity.Runs(run) })
	defer raiseBacklog(backlogFile, filepath.Join(os.TempDir(), "netnice-test-backlog"))()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	self := os.Getpid()
	inner, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env:   append(os.Environ(), runVariable+"="+strconv.Itoa(self)),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = inner.Signal(s) // it may have ended already
		}
	}()
	// A process that loses its parent becomes a child of this process, which waits for it, like init.
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for the tests: %w", err)
		case pid != inner.Pid:
			continue
		case status.Signaled():
			fmt.Fprintf(os.Stderr, "the tests were ended by: %v\n", status.Signal())
			code = 1
		default:
			code = status.ExitStatus()
		}
		break
	}
	if n := endLeftovers(func(run int) bool { return run == self }); n > 0 {
		fmt.Fprintf(os.Stderr, "%d processes that the tests had left were ended\n", n)
	}
	return code, nil
}

// endLeftovers ends all processes of runs, and removes their folders and cgroups. It returns the number of processes
// that it ended.
func endLeftovers(of func(run int) bool) (ended int) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		found := 0
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			if isOfRun(file, of) && pid != os.Getpid() && killOfRun(pid, file, of) {
				found++
			}
		}
		if found == 0 {
			break
		}
		ended = max(ended, found)
		for { // the adopted processes
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid == 0 {
				break
			}
		}
	}
	for _, pattern := range []string{
		filepath.Join(os.TempDir(), runFolder+"*"),
		"/sys/fs/bpf/" + runFolder + "*", "/sys/fs/cgroup/" + runFolder + "*", "/sys/fs/cgroup/*/" + runFolder + "*",
	} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), runFolder), "-")
			if run, err := strconv.Atoi(name); err == nil && of(run) {
				removeTree(path)
			}
		}
	}
	removeEmptyGroups()
	return ended
}

// isOfRun reports by a process's environment whether the process belongs to such a run.
func isOfRun(environ string, of func(run int) bool) bool {
	text, err := os.ReadFile(environ)
	run := runIn(text)
	return err == nil && run != 0 && of(run)
}

// killOfRun kills a process if it still belongs to such a run once a descriptor holds it: another process may have
// got its number.
func killOfRun(pid int, environ string, of func(run int) bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return isOfRun(environ, of) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

const powerGroup = "netnice-cpu-"

// PowerGroups returns the groups of processes with a CPU share, in every hierarchy.
func PowerGroups() (dirs []string) {
	for _, above := range []string{"", "*/", "*/*/", "*/*/*/"} {
		found, _ := filepath.Glob("/sys/fs/cgroup/" + above + powerGroup + "*") // the pattern is valid
		dirs = append(dirs, found...)
	}
	return dirs
}

// removeEmptyGroups removes the groups of CPU shares whose process has ended and whose daemon was killed.
func removeEmptyGroups() {
	for _, dir := range PowerGroups() {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), powerGroup), "-")
		if pid, err := strconv.Atoi(name); err == nil && !identity.Runs(pid) {
			_ = os.Remove(dir) // fails while a process is in it
		}
	}
}

// runIn returns the run that a process's environment names, 0 if none.
func runIn(environ []byte) int {
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if text, ok := bytes.CutPrefix(v, []byte(runVariable+"=")); ok {
			run, _ := strconv.Atoi(string(text))
			return run
		}
	}
	return 0
}

// removeTree removes a folder, or a cgroup, whose files disappear with it.
func removeTree(path string) {
	if !strings.HasPrefix(path, "/sys/fs/cgroup/") {
		_ = os.RemoveAll(path) // the next run tries again
		return
	}
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(path, e.Name()))
		}
	}
	_ = os.Remove(path)
}

const runFolder = "netnice-test-"

// RunName returns the prefix of folders and cgroups that a test makes outside its own temporary folder, so that the
// supervisor finds them.
func RunName() string {
	run := os.Getenv(runVariable)
	if run == "" {
		run = strconv.Itoa(os.Getpid())
	}
	return runFolder + run + "-"
}
