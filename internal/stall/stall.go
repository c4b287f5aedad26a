// Package stall finds out why a daemon that takes calls does not answer: it is stopped, waits in the kernel, has no
// processor, or waits for itself. The package reads that in /proc while the caller waits, and changes nothing.
package stall

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
)

const (
	// lookEarly divides the time that a command waits at most. After the first of these parts the command samples the
	// daemon's activity for the first time. At the end it knows the daemon's activity since then.
	lookEarly = 10
	// busyShare is the part of one processor that a daemon in an endless loop uses at least.
	busyShare = 0.5
	// mostFunctions bounds how many functions of the kernel are named.
	mostFunctions = 5
)

// Watch samples the activity of a daemon while a command waits for its answer.
type Watch struct {
	socket, proc string
	timer        *time.Timer
	early        chan identity.Activity
}

// Begin watches the daemon of a socket. It takes a first sample if the command still waits after a part of the time
// that it waits at most. proc is where procfs is; "" = /proc.
func Begin(socket, proc string, most time.Duration) *Watch {
	w := &Watch{socket: socket, proc: proc, early: make(chan identity.Activity, 1)}
	w.timer = time.AfterFunc(most/lookEarly, func() {
		if seen, err := w.look(); err == nil {
			w.early <- seen
		}
	})
	return w
}

// Stop ends the watch.
func (w *Watch) Stop() { w.timer.Stop() }

// Finding says what a daemon does instead of an answer.
type Finding struct {
	PID    int
	Does   string // such as "is stopped", for a sentence about the process
	Remedy string // commands, a line each
}

// Find takes the last sample and judges by it and the first one. It returns false if the daemon's process, or its
// activity, is not known.
func (w *Watch) Find() (Finding, bool) {
	now, err := w.look()
	if err != nil {
		return Finding{}, false
	}
	var early *identity.Activity
	select {
	case seen := <-w.early:
		if seen.PID == now.PID {
			early = &seen
		}
	default:
	}
	f := Finding{PID: now.PID}
	f.Does, f.Remedy = doing(early, now)
	return f, true
}

// look reads the daemon's activity.
func (w *Watch) look() (identity.Activity, error) {
	resolver, err := identity.New(identity.Options{Proc: w.proc})
	if err != nil {
		return identity.Activity{}, err
	}
	pid := daemonPID(w.socket, w.proc)
	if pid == 0 {
		return identity.Activity{}, errors.New("which process the daemon is, neither its socket nor its lock tells")
	}
	return resolver.Activity(pid)
}

// doing describes the activity of a daemon that does not answer, and names a remedy. Early is the first sample; nil =
// there is none.
func doing(early *identity.Activity, now identity.Activity) (does, hint string) {
	pid := now.PID
	switch now.State {
	case 'T':
		return "is stopped (SIGSTOP, or ^Z in its terminal)", fmt.Sprintf("sudo kill -CONT %d", pid)
	case 't':
		return fmt.Sprintf("is held by a debugger, process %d", now.Tracer), fmt.Sprintf("have that let it go on, or end it: sudo kill %d", now.Tracer)
	case 'Z', 'X':
		return "has ended, and its parent has not waited for it", "sudo netnice up"
	}
	if frozen(now) {
		return "is frozen with its cgroup", fmt.Sprintf("cat /proc/%d/cgroup names it; systemctl thaw UNIT, or echo 0 > /sys/fs/cgroup/CGROUP/cgroup.freeze", pid)
	}
	span := time.Duration(0)
	if early != nil {
		span = now.At.Sub(early.At)
	}
	if t := stuck(early, now); t != nil {
		does = "waits in the kernel" + inFunction(*t)
		if span > 0 {
			does += fmt.Sprintf(", for %s at least", span.Round(time.Second))
		}
		return does, fmt.Sprintf("sudo dmesg says what hangs there; sudo cat /proc/%d/task/%d/stack, how it came there", pid, t.TID)
	}
	const quit = "sudo kill -QUIT %d has it write to its log what it does, and ends it; limits stay, and sudo netnice up takes them over"
	if span > 0 {
		used := float64(now.Busy-early.Busy) / float64(span)
		share := fmt.Sprintf("%.0f%% of a processor in the last %s", 100*used, span.Round(time.Second))
		switch {
		case used >= busyShare:
			return "runs: it used " + share, fmt.Sprintf(quit, pid)
		case wantsToRun(*early) && wantsToRun(now):
			return "wants to run, and had " + share, "other programs have the processors: top"
		}
	}
	functions, known := sleepsIn(now)
	if !known {
		return "sleeps", "sudo netnice status may say what it waits for\n" + fmt.Sprintf(quit, pid)
	}
	return "sleeps, as do all its threads (" + functions + "): it waits for itself, or for an answer", fmt.Sprintf(quit, pid)
}

// frozen reports whether the cgroup of a process is frozen. The functions are those in which processes of cgroup v2 and
// of v1 wait then.
func frozen(a identity.Activity) bool {
	return slices.ContainsFunc(a.Threads, func(t identity.ThreadActivity) bool {
		return t.Function == "do_freezer_trap" || t.Function == "__refrigerator"
	})
}

// stuck finds a thread in an uninterruptible wait in the kernel that has lasted since the first sample.
func stuck(early *identity.Activity, now identity.Activity) *identity.ThreadActivity {
	for i, t := range now.Threads {
		if t.State != 'D' {
			continue
		}
		if early == nil || slices.ContainsFunc(early.Threads, func(was identity.ThreadActivity) bool {
			return was.TID == t.TID && was.State == 'D' && was.Switches == t.Switches
		}) {
			return &now.Threads[i]
		}
	}
	return nil
}

// inFunction describes where in the kernel a thread waits, such as
// ", in rtnl_lock (from rtnetlink_rcv_msg; system call sendto)".
func inFunction(t identity.ThreadActivity) string {
	text := ""
	if t.Function != "" {
		text = ", in " + t.Function
	}
	var more []string
	if path := slices.DeleteFunc(slices.Clone(t.Path), func(name string) bool { return name == t.Function }); len(path) > 0 {
		more = append(more, "from "+strings.Join(path[:min(len(path), mostFunctions)], ", "))
	}
	if t.Call >= 0 {
		more = append(more, "system call "+callName(t.Call))
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, "; ") + ")"
	}
	return text
}

func wantsToRun(a identity.Activity) bool {
	return slices.ContainsFunc(a.Threads, func(t identity.ThreadActivity) bool { return t.State == 'R' })
}

// sleepsIn names the functions of the kernel in which threads sleep, false if the caller may not know.
func sleepsIn(a identity.Activity) (names string, known bool) {
	var list []string
	for _, t := range a.Threads {
		if t.Function != "" && !slices.Contains(list, t.Function) {
			list = append(list, t.Function)
		}
	}
	slices.Sort(list)
	return strings.Join(list[:min(len(list), mostFunctions)], ", "), len(list) > 0
}

// callName returns the name of a system call in which a daemon may wait, or its number.
func callName(call int) string {
	for name, number := range map[string]int{
		"bpf": unix.SYS_BPF, "close": unix.SYS_CLOSE, "connect": unix.SYS_CONNECT, "fdatasync": unix.SYS_FDATASYNC, "flock": unix.SYS_FLOCK,
		"fsync": unix.SYS_FSYNC, "futex": unix.SYS_FUTEX, "ioctl": unix.SYS_IOCTL, "mount": unix.SYS_MOUNT, "openat": unix.SYS_OPENAT,
		"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "read": unix.SYS_READ, "recvfrom": unix.SYS_RECVFROM, "recvmsg": unix.SYS_RECVMSG, "renameat": unix.SYS_RENAMEAT,
		"sendmsg": unix.SYS_SENDMSG, "sendto": unix.SYS_SENDTO, "setns": unix.SYS_SETNS, "umount": unix.SYS_UMOUNT2, "unlinkat": unix.SYS_UNLINKAT, "write": unix.SYS_WRITE,
	} {
		if number == call {
			return name
		}
	}
	return strconv.Itoa(call)
}
