package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/statefile"
)

const (
	socketMode = 0o666 // the connection identifies the caller
	dirMode    = 0o755
)

// lockName is the lock's name beside a socket: netnice.lock for netnice.sock.
func lockName(socket string) string {
	return strings.TrimSuffix(filepath.Base(socket), ".sock") + ".lock"
}

// locks are those of a daemon.
type locks struct{ run, state *lock }

// lock is the lock of the one daemon for a socket, or for a state directory.
type lock struct {
	file   *os.File
	dir    string
	folder fs.FileInfo // the directory at the time when the lock was first taken
}

// acquire takes the lock, or says which process holds it. It makes the directory.
func acquire(dir, name string) (*lock, error) {
	path := filepath.Join(dir, name)
	for {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // a leaving daemon has just removed the directory
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR):
			return nil, inTheWay(path, "a file", err)
		case err != nil:
			return nil, folderError(dir, fmt.Errorf("open the daemon's lock: %w", err))
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, err
		}
		// The previous holder may have removed the file meanwhile.
		if same, err := sameFile(f, path); err != nil || !same {
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("lock %s: %w", path, err)
			}
			continue
		}
		// The pid is for people who read the file. netnice itself asks for the holder of the lock, which also works on
		// a full disk.
		_ = errors.Join(f.Truncate(0), writePID(f))
		return locked(f, dir)
	}
}

// acquireDir locks a directory itself, so that two daemons with different sockets cannot share its content. It makes
// the directory, and refuses one in which others may put files.
func acquireDir(dir string) (*lock, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, needsRoot(fmt.Errorf("open the state directory: %w", err))
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = statefile.TrustFolder(dir, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return locked(f, dir)
}

func locked(f *os.File, dir string) (*lock, error) {
	folder, err := os.Stat(dir)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return &lock{file: f, dir: dir, folder: folder}, nil
}

// lockPatience is the time that flock waits for a lock which no process is seen to hold. The threads of a killed daemon
// end one after the other, and the last one releases its lock.
const lockPatience = 2 * time.Second

// flock locks an open file, or says which process has locked it.
func flock(f *os.File) error {
	var holder lockHolder
	var known bool
	var err error
	for end := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if holder, known = holderOf(procFolder, f.Name()); known || time.Now().After(end) {
			break
		}
	}
	if known && !holder.daemon {
		return &api.Error{
			Code:    api.CodeConflict,
			Message: fmt.Sprintf("process %d (%s), which is no netnice daemon, holds %s", holder.pid, holder.name, f.Name()),
			Hint:    fmt.Sprintf("look what it is: ps -fp %d; the daemon starts when that process has ended: sudo kill %d", holder.pid, holder.pid),
			Cause:   err,
		}
	}
	who := ""
	if known {
		who = fmt.Sprintf(" (pid %d)", holder.pid)
	}
	return &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("a netnice daemon runs already%s and holds %s", who, f.Name()),
		Hint:    "netnice status shows it; sudo netnice down ends it and lifts all limits",
		Cause:   err,
	}
}

// unlock releases the lock on a file and closes it. Closing it is not enough: a process that the daemon is just starting
// holds the file, and with it the lock, until it executes its program.
func unlock(f *os.File) error {
	return errors.Join(os.NewSyscallError("flock", unix.Flock(int(f.Fd()), unix.LOCK_UN)), f.Close())
}

func writePID(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func sameFile(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, there), nil
}

// errUnseen says that the presence of a lock's file cannot be checked.
var errUnseen = errors.New("look whether it is still there")

// renew takes the lock again if its file was removed or replaced. It restores the mode and the owner of the directory.
// It reports whether it has taken the lock.
func (l *lock) renew() (bool, error) {
	same, err := sameFile(l.file, l.file.Name())
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnseen, err)
	}
	if same {
		return false, nil
	}
	take := func() (*lock, error) { return acquire(l.dir, filepath.Base(l.file.Name())) }
	if l.file.Name() == l.dir {
		take = func() (*lock, error) { return acquireDir(l.dir) }
	}
	next, err := take()
	if err != nil {
		return false, err
	}
	old := l.file
	l.file = next.file
	return true, errors.Join(unlock(old), likeBefore(l.dir, l.folder))
}

// likeBefore gives a newly made directory the mode and the owner of the previous one.
func likeBefore(dir string, was fs.FileInfo) error {
	is, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if is.Mode().Perm() != was.Mode().Perm() {
		if err := os.Chmod(dir, was.Mode().Perm()); err != nil {
			return err
		}
	}
	old, ok := was.Sys().(*syscall.Stat_t)
	now, ok2 := is.Sys().(*syscall.Stat_t)
	if ok && ok2 && (old.Uid != now.Uid || old.Gid != now.Gid) {
		return os.Chown(dir, int(old.Uid), int(old.Gid))
	}
	return nil
}

// release releases the lock. With clean it also removes the directory, if that is empty. If the lock's file was
// replaced, the new file belongs to somebody else and stays.
func (l *lock) release(clean bool) error {
	var err error
	if l.file.Name() != l.dir {
		same, lost := sameFile(l.file, l.file.Name())
		if err = lost; err == nil && same {
			err = statefile.RemoveFile(l.file.Name())
		}
	}
	if clean {
		// A file of somebody else in it is a reason to leave it.
		_ = os.Remove(l.dir)
	}
	return errors.Join(err, unlock(l.file))
}

// makeDir makes a directory that everybody may enter, regardless of the umask.
func makeDir(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return inTheWay(dir, "a directory", unix.ENOTDIR)
		}
		return nil
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		if errors.Is(err, unix.EEXIST) { // a dangling symbolic link
			return inTheWay(dir, "a directory", err)
		}
		return folderError(dir, fmt.Errorf("make a directory: %w", err))
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return nil
}

// inTheWay returns the error for a path that netnice needs for a file of another kind.
func inTheWay(path, wanted string, cause error) error {
	return &api.Error{
		Code:    api.CodeInternal,
		Message: fmt.Sprintf("%s is in the way: it is not %s", path, wanted),
		Hint:    "look what it is: ls -ld " + path + "; then: sudo mv " + path + " " + path + ".bad",
		Cause:   cause,
	}
}

// folderError adds a remedy to the failure to make a file in a folder.
func folderError(dir string, err error) error {
	if hint := statefile.DiskRemedy(dir, err); hint != "" {
		return &api.Error{Code: api.CodeInternal, Message: err.Error(), Hint: hint, Cause: err}
	}
	return needsRoot(err)
}

func needsRoot(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &api.Error{Code: api.CodeDenied, Message: err.Error(), Hint: "sudo netnice daemon", Cause: err}
}
