package identity

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The methods in this file read the facts that rules compare. Each reads few files of /proc, because a rule's
// conditions are compared for every program that is executed.

func (r *Resolver) file(pid int, name string) string {
	return r.procRoot + "/" + strconv.Itoa(pid) + "/" + name
}

// Program returns the path of the file that a process runs, and the kernel's
// name for the process. Kernel threads have no path.
func (r *Resolver) Program(pid int) (path, comm string, err error) {
	if path, err = os.Readlink(r.file(pid, "exe")); err != nil {
		return "", "", fmt.Errorf("read the program of process %d: %w", pid, err)
	}
	if comm, err = readTrimmed(r.file(pid, "comm")); err != nil {
		return "", "", fmt.Errorf("read the name of process %d: %w", pid, err)
	}
	return strings.TrimSuffix(path, " (deleted)"), comm, nil
}

// IDs returns the real user and the parent of a process.
func (r *Resolver) IDs(pid int) (uid uint32, parent int, err error) {
	text, err := os.ReadFile(r.file(pid, "status"))
	if err != nil {
		return 0, 0, fmt.Errorf("read the status of process %d: %w", pid, err)
	}
	number := func(name string) (uint64, error) {
		word, _, _ := strings.Cut(statusField(text, name), "\t")
		return strconv.ParseUint(word, 10, 32)
	}
	ppid, errP := number("PPid")
	id, errU := number("Uid")
	if errP != nil || errU != nil {
		return 0, 0, fmt.Errorf("read the status of process %d: no PPid or Uid", pid)
	}
	return uint32(id), int(ppid), nil
}

// mostCommand bounds the part of a command line that is read, in bytes.
const mostCommand = 4096

// Command returns the command line of a process, words with a space between, cut
// after 4096 bytes.
func (r *Resolver) Command(pid int) (string, error) {
	f, err := os.Open(r.file(pid, "cmdline"))
	if err != nil {
		return "", fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	defer f.Close()
	text := make([]byte, mostCommand)
	n, err := f.Read(text)
	if n == 0 {
		return "", err
	}
	return string(bytes.ReplaceAll(bytes.TrimRight(text[:n], "\x00"), []byte{0}, []byte{' '})), nil
}

// Variable returns a variable of the environment that a process was started with. The result is "" if the process has
// no such variable, or if the caller may not read its environment.
func (r *Resolver) Variable(pid int, name string) string {
	text, err := os.ReadFile(r.file(pid, "environ"))
	if err != nil {
		return ""
	}
	return VariableIn(text, name)
}

// VariableIn returns a variable of an environment as /proc/PID/environ has it, "" if it is not there.
func VariableIn(text []byte, name string) string {
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// InheritedVariable returns a variable of the environment of a process, or of its nearest ancestor that has one. It
// finds variables that a process in between has removed, as sudo does.
func (r *Resolver) InheritedVariable(pid int, name string) string {
	for _, a := range r.Ancestors(pid) {
		if value := r.Variable(a.PID, name); value != "" {
			return value
		}
	}
	return ""
}

// Processes lists the processes of the machine, sorted by start time.
func (r *Resolver) Processes() ([]Ancestor, error) {
	all, err := r.proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	list := make([]Ancestor, 0, len(all))
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || stat.Flags&pfKthread != 0 || ended(stat.State, stat.NumThreads) {
			continue
		}
		list = append(list, Ancestor{PID: p.PID, StartBoottimeNS: stat.Starttime * TickNS})
	}
	return list, nil
}

// ProcessInfo is an entry of ProcessTable.
type ProcessInfo struct {
	PID, Parent int
	UID         uint32 // real user id
	Path        string // path of the program's file; "" where the caller may not read it
	Comm        string // the kernel's name for the process
}

// ProcessTable lists the processes of the machine with their names, threads of the kernel left out.
func (r *Resolver) ProcessTable() ([]ProcessInfo, error) {
	all, err := r.proc.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	list := make([]ProcessInfo, 0, len(all))
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || stat.Flags&pfKthread != 0 || ended(stat.State, stat.NumThreads) {
			continue
		}
		uid, parent, err := r.IDs(p.PID)
		if err != nil {
			continue // the process has ended meanwhile
		}
		path, _, err := r.Program(p.PID)
		if err != nil {
			path = "" // the process belongs to another user
		}
		list = append(list, ProcessInfo{PID: p.PID, Parent: parent, UID: uid, Path: path, Comm: stat.Comm})
	}
	return list, nil
}

// monotonic clock of what the kernel reports.
func monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// BootTimeNS returns the time on CLOCK_BOOTTIME.
func BootTimeNS() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // each kernel that netnice runs on has this clock
	return uint64(now.Nano())
}

// SinceNS returns the time since a moment of CLOCK_MONOTONIC.
func SinceNS(at uint64) uint64 {
	now := monotonic()
	if now < at || at == 0 {
		return 0
	}
	return now - at
}
