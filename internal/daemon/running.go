package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
)

// The kernel knows which process holds a lock, whatever has become of the socket. The daemon uses that to find another
// daemon that does not answer. It does not trust the content of a lock file: anybody may have written that.

const procFolder = "/proc"

// lockHolder is the process that holds the lock of a file or folder.
type lockHolder struct {
	pid    int
	name   string // name of its program
	daemon bool   // it is a netnice daemon
	socket string // the socket that it listens on, "" = unknown
}

// Running is a netnice daemon that holds a lock.
type Running struct {
	PID int
	// Socket is the socket that it listens on, by its command line; "" = unknown.
	Socket string
}

// Locks returns the files and folders that the daemon of a socket and a state folder has locked.
func Locks(socket, stateDir string) []string {
	return []string{filepath.Join(filepath.Dir(socket), lockName(socket)), stateDir}
}

// FindRunning finds the daemon that holds one of the locks. It returns false if no daemon does, or the holder is
// unknown.
func FindRunning(locks ...string) (Running, bool) { return findRunning(procFolder, locks) }

func findRunning(proc string, locks []string) (Running, bool) {
	for _, path := range locks {
		if h, ok := holderOf(proc, path); ok && h.daemon {
			return Running{PID: h.pid, Socket: h.socket}, true
		}
	}
	return Running{}, false
}

// SignalRunning sends a signal to a daemon that was found. It does so only if the process is seen to hold one of these
// locks still: otherwise it has ended, and another process may have its number now.
func SignalRunning(r Running, signal syscall.Signal, locks ...string) error {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // the process has ended
	}
	if err != nil {
		return fmt.Errorf("look at process %d: %w", r.PID, err)
	}
	defer unix.Close(fd)
	if again, ok := FindRunning(locks...); !ok || again.PID != r.PID || !holds(procFolder, r.PID, locks) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", r.PID, err)
	}
	return nil
}

// holderOf finds the process that holds the lock of a file or folder, by the kernel's table.
func holderOf(proc, path string) (lockHolder, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return lockHolder{}, false
	}
	table, err := os.ReadFile(filepath.Join(proc, "locks"))
	if err != nil {
		return lockHolder{}, false
	}
	for _, l := range flocksOf(string(table), st.Ino) {
		// For some file systems the kernel's table has another device number than stat(2). Then the process has to be
		// seen to have the file open, which only root and its user can see.
		same := l.device == fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
		if has, known := opened(proc, l.pid, st); has || same && !known {
			return describe(proc, l.pid), true
		}
	}
	return lockHolder{}, false
}

// flocked is a lock by flock(2).
type flocked struct {
	pid    int
	device string // device of the file
}

// flocksOf lists the locks on files of that inode number, from lines such as
//
//	7: FLOCK  ADVISORY  WRITE 4711 00:19:1234 0 EOF
//
// A process that waits for a lock has an arrow behind the line number, and holds none yet.
func flocksOf(table string, inode uint64) (list []flocked) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		at := strings.LastIndexByte(f[5], ':')
		if at < 0 || f[5][at+1:] != strconv.FormatUint(inode, 10) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 { // a process of another pid namespace has none here
			list = append(list, flocked{pid: pid, device: f[5][:at]})
		}
	}
	return list
}

// opened reports whether a process has a file open; known is false where that cannot be seen.
func opened(proc string, pid int, file unix.Stat_t) (has, known bool) {
	dir := filepath.Join(proc, strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, errors.Is(err, fs.ErrNotExist) // the process has ended
	}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, e.Name()), &st) == nil && st.Dev == file.Dev && st.Ino == file.Ino {
			return true, true
		}
	}
	return false, true
}

// holds reports whether a process is seen to have one of the files open.
func holds(proc string, pid int, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			return false
		}
		has, known := opened(proc, pid, st)
		return has && known
	})
}

// ownedByRootOr reports whether the owner of a process's folder in /proc is root or that user.
func ownedByRootOr(info os.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == uid)
}

// describe returns the properties of a process that may hold a lock.
func describe(proc string, pid int) lockHolder {
	h := lockHolder{pid: pid, daemon: pid == os.Getpid()}
	dir := filepath.Join(proc, strconv.Itoa(pid))
	if text, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		h.name = strings.TrimSuffix(string(text), "\n")
	}
	text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return h
	}
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	// Anybody may have a program of that name.
	if info, err := os.Stat(dir); err != nil || !ownedByRootOr(info, os.Geteuid()) {
		return h
	}
	const program = "netnice"
	if h.name != program && filepath.Base(args[0]) != program || !slices.Contains(args[1:], "daemon") {
		return h
	}
	h.daemon = true
	h.socket = DefaultSocketPath
	if text, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil {
		h.socket = cmp.Or(identity.VariableIn(text, "NETNICE_SOCKET"), h.socket)
	} else {
		h.socket = "" // the environment may name another one
	}
	for i, arg := range args {
		if path, ok := strings.CutPrefix(arg, "--socket="); ok {
			h.socket = path
		} else if arg == "--socket" && i+1 < len(args) {
			h.socket = args[i+1]
		}
	}
	if h.socket != "" && !filepath.IsAbs(h.socket) {
		h.socket = "" // it is relative to a folder that the process may have left
	}
	return h
}
