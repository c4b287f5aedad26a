package cpu

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
)

// Policy holds the parameters by which the kernel schedules a thread.
type Policy struct {
	Number   uint32 `json:"number"` // SCHED_*
	Flags    uint64 `json:"flags,omitempty"`
	Nice     int32  `json:"nice,omitempty"`
	Priority uint32 `json:"priority,omitempty"` // for real-time policies
}

// errNotAlone says that a process has threads or children. A deadline belongs to one thread, and the threads and
// processes that it starts have no part of it.
var errNotAlone = errors.New("it has threads or children, and a deadline is one thread's")

// PolicyOf returns the policy of a process that has one thread and no children. It fails for any other process, and
// for one that has a deadline already.
func (m *Machine) PolicyOf(pid int) (Policy, error) {
	if err := alone(pid); err != nil {
		return Policy{}, err
	}
	attr, err := unix.SchedGetAttr(pid, 0)
	switch {
	case err != nil:
		return Policy{}, fmt.Errorf("read how process %d is scheduled: %w", pid, err)
	case attr.Policy == unix.SCHED_DEADLINE:
		return Policy{}, fmt.Errorf("process %d has a deadline of its own: %w", pid, enforce.ErrNotSupported)
	}
	return Policy{Number: attr.Policy, Flags: attr.Flags, Nice: attr.Nice, Priority: attr.Priority}, nil
}

// alone returns nil for a process of one thread without children.
func alone(pid int) error {
	tree, err := Tree(pid)
	if err != nil {
		return err
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	switch {
	case err != nil:
		return fmt.Errorf("process %d has ended: %w", pid, unix.ESRCH)
	case len(tree) != 1 || len(threads) != 1:
		return errNotAlone
	}
	return nil
}

// Strict puts a process of one thread under the kernel's deadline scheduler. The process gets a slice in each period
// before all processes without a deadline, in any group. Its children are scheduled as usual.
func (m *Machine) Strict(pid int, s Share) error {
	if err := alone(pid); err != nil {
		return err
	}
	was, err := unix.SchedGetAttr(pid, 0)
	if err == nil && was.Policy == unix.SCHED_DEADLINE {
		return deadline(pid, s)
	}
	// A kernel (6.18) may lose a process whose group has just used up its quota. The process is then ready, and
	// never runs until it is scheduled as usual again.
	for range deadlineTries {
		if err != nil {
			return fmt.Errorf("read how process %d is scheduled: %w", pid, err)
		}
		if err := deadline(pid, s); err != nil || runs(pid, s) {
			return err
		}
		err = unix.SchedSetAttr(pid, was, 0)
	}
	return errors.Join(err, errors.New("the kernel gives it a deadline, and no time by that"))
}

const deadlineTries = 10

// runs reports whether a process with a deadline gets processor time, or sleeps.
func runs(pid int, s Share) bool {
	before, _ := threadsTime(pid)
	for until := time.Now().Add(time.Duration(s.PeriodNS) + sure); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if now, _ := threadsTime(pid); now != before || !ready(pid) {
			return true
		}
	}
	return false
}

// sure is the time beyond a period that runs waits.
const sure = 20 * time.Millisecond

// ready reports whether a process could run.
func ready(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := strings.LastIndex(string(text), ") ") // the end of the program's name
	return err == nil && at >= 0 && strings.HasPrefix(string(text[at+2:]), "R")
}

func deadline(pid int, s Share) error {
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_DEADLINE, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
		Runtime: s.SliceNS, Deadline: s.PeriodNS, Period: s.PeriodNS,
	}
	err := unix.SchedSetAttr(pid, &attr, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("the kernel has no room for its deadline (deadlines have 95 per cent of the processors in all): %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("the kernel gives it no deadline: it may not be bound to some of the processors: %w", err)
	case err != nil:
		return fmt.Errorf("give process %d a deadline: %w", pid, err)
	}
	return nil
}

// Loose gives a process back the policy from before Strict, if it still has a deadline.
func (m *Machine) Loose(pid int, was Policy) error {
	now, err := unix.SchedGetAttr(pid, 0)
	if errors.Is(err, unix.ESRCH) || err == nil && now.Policy != unix.SCHED_DEADLINE {
		return nil
	}
	if err == nil {
		err = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: was.Number, Flags: was.Flags, Nice: was.Nice, Priority: was.Priority}, 0)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("schedule process %d as before: %w", pid, err)
	}
	return nil
}
