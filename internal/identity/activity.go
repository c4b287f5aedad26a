package identity

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Activity describes the activity of a process at one time, as far as /proc shows it to the caller.
type Activity struct {
	PID  int
	At   time.Time
	Busy time.Duration // processor time since its start
	// State of its first thread, as in /proc/PID/status: R, S, D, T (stopped), t (held by Tracer), Z, X.
	State   byte
	Tracer  int
	Threads []ThreadActivity
}

// ThreadActivity describes the activity of one thread.
type ThreadActivity struct {
	TID      int
	State    byte
	Switches uint64 // how often it has begun or ceased to run
	// Function is the kernel function in which the thread waits, "" if it does not wait, or the caller may not know.
	Function string
	// Call is the number of the thread's present system call, -1 if there is none, or the caller may not know.
	Call int
	// Path is the stack of kernel functions, the innermost first. Only root may know it.
	Path []string
}

// Activity reads the activity of a process.
func (r *Resolver) Activity(pid int) (Activity, error) {
	a := Activity{PID: pid, At: time.Now()}
	proc, err := r.proc.Proc(pid)
	if err != nil {
		return a, fmt.Errorf("look at process %d: %w", pid, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return a, fmt.Errorf("look at process %d: %w", pid, err)
	}
	a.Busy = time.Duration(stat.CPUTime() * float64(time.Second))
	status, err := os.ReadFile(r.file(pid, "status"))
	if err != nil {
		return a, fmt.Errorf("look at process %d: %w", pid, err)
	}
	a.State = stateOf(status)
	a.Tracer, _ = strconv.Atoi(statusField(status, "TracerPid")) // 0 without one
	entries, err := os.ReadDir(r.file(pid, "task"))
	if err != nil && !notThere(err) {
		return a, fmt.Errorf("look at the threads of process %d: %w", pid, err)
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if t, err := r.thread(pid, tid); err == nil { // on an error the thread has ended
			a.Threads = append(a.Threads, t)
		}
	}
	return a, nil
}

func (r *Resolver) thread(pid, tid int) (ThreadActivity, error) {
	folder := "task/" + strconv.Itoa(tid) + "/"
	t := ThreadActivity{TID: tid, Call: -1}
	status, err := os.ReadFile(r.file(pid, folder+"status"))
	if err != nil {
		return t, err
	}
	t.State = stateOf(status)
	for _, name := range []string{"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"} {
		n, _ := strconv.ParseUint(statusField(status, name), 10, 64) // 0 where the kernel does not count
		t.Switches += n
	}
	// Only privileged callers may read the following files.
	if text, err := readTrimmed(r.file(pid, folder+"wchan")); err == nil && text != "0" {
		t.Function = text
	}
	if text, err := readTrimmed(r.file(pid, folder+"syscall")); err == nil {
		word, _, _ := strings.Cut(text, " ")
		if n, err := strconv.Atoi(word); err == nil { // not "running"
			t.Call = n
		}
	}
	if text, err := readTrimmed(r.file(pid, folder+"stack")); err == nil {
		t.Path = functions(text)
	}
	if t.Function == "" && len(t.Path) > 0 {
		t.Function = t.Path[0]
	}
	return t, nil
}

// functions reads the names of /proc/PID/stack, a line for each: [<0>] rtnl_lock+0x15/0x20.
func functions(stack string) (names []string) {
	for line := range strings.Lines(stack) {
		_, name, found := strings.Cut(line, "] ")
		if name, _, _ = strings.Cut(strings.TrimSpace(name), "+"); found && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// statusField returns a value of /proc/PID/status below its first line, "" if there is none.
func statusField(status []byte, name string) string {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":"))
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(bytes.TrimSpace(value))
}

func stateOf(status []byte) byte {
	state := statusField(status, "State")
	if state == "" {
		return '?'
	}
	return state[0]
}
