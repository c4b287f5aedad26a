package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// TickNS is the grain of the start times that /proc shows: the kernel divides
// task->start_boottime by 10 ms and drops the rest (USER_HZ is 100 wherever
// netnice runs). The exact start therefore lies in [StartBoottimeNS,
// StartBoottimeNS + TickNS). A daemon in a time namespace would see its own
// offset added, so it must run in the initial one.
const TickNS = 10_000_000

// pfKthread is PF_KTHREAD of the flags word in /proc/PID/stat.
const pfKthread = 0x00200000

// SameStart reports whether two start times, exact or rounded to ticks, can be
// of the same process.
func SameStart(a, b uint64) bool { return a/TickNS == b/TickNS }

// process resolves the process that pid, which may be a thread's id, belongs to.
func (r *Resolver) process(pid int) (Resolved, error) {
	gone := func(err error) error {
		if notThere(err) {
			return notFound(fmt.Sprintf("no process has pid %d", pid), "ps -e")
		}
		return fmt.Errorf("read process %d: %w", pid, err)
	}
	thread, err := r.proc.Proc(pid)
	if err != nil {
		return Resolved{}, gone(err)
	}
	status, err := thread.NewStatus()
	if err != nil {
		return Resolved{}, gone(err)
	}
	proc, err := r.proc.Proc(status.TGID)
	if err != nil {
		return Resolved{}, gone(err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return Resolved{}, gone(err)
	}
	if stat.Flags&pfKthread != 0 {
		return Resolved{}, &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("pid %d (%s) is a thread of the kernel, not a process", pid, stat.Comm),
			Hint:    "limit the machine instead: sudo netnice set --host ...",
		}
	}
	if ended(stat.State, stat.NumThreads) {
		return Resolved{}, notFound(fmt.Sprintf("process %d (%s) has ended", status.TGID, stat.Comm), "ps -e")
	}
	if status, err = proc.NewStatus(); err != nil {
		return Resolved{}, gone(err)
	}
	// The pid may have been given to another process between the two reads.
	again, err := proc.Stat()
	if err != nil {
		return Resolved{}, gone(err)
	}
	if again.Starttime != stat.Starttime {
		return Resolved{}, notFound(fmt.Sprintf("process %d (%s) has ended", status.TGID, stat.Comm), "ps -e")
	}
	if status.TGID == 1 {
		return Host(), nil
	}
	return Resolved{
		Subject:         PIDSubject(status.TGID),
		Kind:            enforce.KindTree,
		Key:             uint64(status.TGID),
		StartBoottimeNS: stat.Starttime * TickNS,
		UID:             uint32(status.UIDs[0]),
		Name:            stat.Comm,
	}, nil
}

// PIDSubject returns the subject of the process tree that starts at pid.
func PIDSubject(pid int) api.Subject {
	return api.Subject{Kind: api.KindPID, ID: strconv.Itoa(pid)}
}

// Alive reports whether the process pid that started at startNS still runs. A
// zombie without living threads does not.
func (r *Resolver) Alive(pid int, startNS uint64) bool {
	_, start, ok := r.ProcessName(pid)
	return ok && SameStart(start, startNS)
}

// Runs reports whether a process exists and has a thread that runs.
func Runs(pid int) bool {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := proc.Stat()
	return err == nil && !ended(stat.State, stat.NumThreads)
}

// ProcessName returns command and start time (in ns, rounded to TickNS) of a
// process that still runs.
func (r *Resolver) ProcessName(pid int) (comm string, startNS uint64, ok bool) {
	proc, err := r.proc.Proc(pid)
	if err != nil {
		return "", 0, false
	}
	stat, err := proc.Stat()
	if err != nil || ended(stat.State, stat.NumThreads) {
		return "", 0, false
	}
	return stat.Comm, stat.Starttime * TickNS, true
}

// LastName returns the command of the process pid that started at startNS. The process may also have ended, as long as
// its parent has not waited for it yet.
func (r *Resolver) LastName(pid int, startNS uint64) (comm string, ok bool) {
	proc, err := r.proc.Proc(pid)
	if err != nil {
		return "", false
	}
	stat, err := proc.Stat()
	if err != nil || !SameStart(stat.Starttime*TickNS, startNS) {
		return "", false
	}
	return stat.Comm, true
}

// Ancestor is one process on the way from a process up to init.
type Ancestor struct {
	PID             int
	StartBoottimeNS uint64
}

// Ancestors returns the process itself and its parents, innermost first. The
// list ends early where a parent ends while it is read.
func (r *Resolver) Ancestors(pid int) []Ancestor {
	var list []Ancestor
	const deepest = 4096 // a loop is impossible; pid reuse during the walk is not
	for pid > 1 && len(list) < deepest {
		proc, err := r.proc.Proc(pid)
		if err != nil {
			break
		}
		stat, err := proc.Stat()
		if err != nil {
			break
		}
		list = append(list, Ancestor{PID: pid, StartBoottimeNS: stat.Starttime * TickNS})
		pid = stat.PPID
	}
	return list
}

// Census counts the processes of the machine by real uid, threads of the
// kernel left out.
func (r *Resolver) Census() (map[uint32]int, error) {
	procs, err := r.proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	count := make(map[uint32]int)
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil || stat.Flags&pfKthread != 0 {
			continue
		}
		status, err := p.NewStatus()
		if err != nil {
			continue
		}
		count[uint32(status.UIDs[0])]++
	}
	return count, nil
}

// ended reports whether a process with this state and number of threads is
// dead. A leader that has left its threads running shows as a zombie too.
func ended(state string, threads int) bool {
	return state == "X" || state == "Z" && threads <= 1
}

func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func readTrimmed(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}
