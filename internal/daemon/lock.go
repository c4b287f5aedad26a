package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
)

const (
	socketMode = 0o666 // who calls is known from the connection
	dirMode    = 0o755
)

// lockName is the lock's name beside a socket: netnice.lock for netnice.sock.
func lockName(socket string) string {
	return strings.TrimSuffix(filepath.Base(socket), ".sock") + ".lock"
}

// lock is held by the one daemon of a socket, or of a state directory.
type lock struct {
	file *os.File
	dir  string
}

// acquire takes the lock, or says who has it. It makes the directory.
func acquire(dir, name string) (*lock, error) {
	path := filepath.Join(dir, name)
	for {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a daemon that leaves has just removed the directory
		}
		if err != nil {
			return nil, needsRoot(fmt.Errorf("open the daemon's lock: %w", err))
		}
		if err := flock(f, readHolder(f)); err != nil {
			f.Close()
			return nil, err
		}
		// The one who held it before may have removed the file meanwhile.
		if same, err := sameFile(f, path); err != nil || !same {
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("lock %s: %w", path, err)
			}
			continue
		}
		if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
			f.Close()
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		return &lock{file: f, dir: dir}, nil
	}
}

// acquireDir locks a directory itself, so that no two daemons with sockets of
// their own share what is in it. It makes the directory.
func acquireDir(dir string) (*lock, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, needsRoot(fmt.Errorf("open the state directory: %w", err))
	}
	if err := flock(f, ""); err != nil {
		f.Close()
		return nil, err
	}
	return &lock{file: f, dir: dir}, nil
}

// flock locks an open file, or says that another daemon has.
func flock(f *os.File, holder string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return &api.Error{
		Code:    api.CodeConflict,
		Message: fmt.Sprintf("a netnice daemon runs already%s and holds %s", holder, f.Name()),
		Hint:    "netnice status shows it; sudo netnice down ends it and lifts all limits",
		Cause:   err,
	}
}

func writePID(f *os.File) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func readHolder(f *os.File) string {
	buf := make([]byte, 16)
	n, _ := f.ReadAt(buf, 0)
	if pid := strings.TrimSpace(string(buf[:n])); pid != "" {
		return " (pid " + pid + ")"
	}
	return ""
}

func sameFile(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, there), nil
}

// release gives the lock up; with clean, the directory goes too if it holds
// nothing.
func (l *lock) release(clean bool) error {
	var err error
	if l.file.Name() != l.dir {
		err = os.Remove(l.file.Name())
	}
	if clean {
		// Somebody else's file in it is a reason to leave it.
		_ = os.Remove(l.dir)
	}
	return errors.Join(err, l.file.Close())
}

// makeDir makes a directory that everybody may enter, whatever the umask.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return needsRoot(fmt.Errorf("make a directory: %w", err))
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	return nil
}

func needsRoot(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &api.Error{Code: api.CodeDenied, Message: err.Error(), Hint: "sudo netnice daemon", Cause: err}
}

// listen opens the daemon's socket. The caller holds the lock, so a socket that
// is there was left behind by a daemon that died. The socket appears under its
// name when everybody may connect, and not before; see hide.
func listen(path string) (*net.UnixListener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, &api.Error{
			Code:    api.CodeInternal,
			Message: fmt.Sprintf("%s is in the way: it is not a socket", path),
			Hint:    "look what it is, then: sudo rm " + path,
		}
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	unready := path + ".new"
	if err := os.Remove(unready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, needsRoot(fmt.Errorf("remove a dead daemon's socket: %w", err))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: unready, Net: "unix"})
	if err != nil {
		return nil, needsRoot(fmt.Errorf("listen on the daemon's socket: %w", err))
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(unready, socketMode), os.Rename(unready, path)); err != nil {
		l.Close()
		_ = os.Remove(unready)
		return nil, fmt.Errorf("open the daemon's socket to all users: %w", err)
	}
	return l, nil
}

// hide takes the socket's name away, so that whoever comes finds no daemon
// rather than one that leaves.
func hide(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the daemon's socket: %w", err)
	}
	return nil
}
