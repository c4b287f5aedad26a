package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/netnice/netnice/api"
)

// endpoint is the socket that callers come to. Its name may go while the daemon runs: somebody
// empties /run, or mounts something there. Nobody could reach the daemon then, so it binds the name
// anew. It looks at each tick, which is there anyway: a watch would not see what is mounted over it.
type endpoint struct {
	path   string
	passed bool // a service manager has opened it, and sees to its name

	mu     sync.Mutex // guards what follows
	on     *net.UnixListener
	bound  fs.FileInfo // what the name stood for; nil: there was none
	folder fs.FileInfo // it was in; nil: unknown
	over   bool        // the daemon leaves, or is about to serve anew
}

func newEndpoint(path string, on *net.UnixListener, passed bool) *endpoint {
	e := &endpoint{path: path, passed: passed}
	e.take(on)
	return e
}

// take has callers come to a listener.
func (e *endpoint) take(on *net.UnixListener) {
	e.on, e.bound = on, nil
	if info, err := os.Lstat(e.path); err == nil {
		e.bound = info
	}
	if info, err := os.Stat(filepath.Dir(e.path)); err == nil && e.folder == nil {
		e.folder = info
	}
}

// named reports whether the name still stands for the socket. The caller holds e.mu.
func (e *endpoint) named() bool {
	info, err := os.Lstat(e.path)
	return err == nil && e.bound != nil && os.SameFile(info, e.bound)
}

func (e *endpoint) listening() *net.UnixListener {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.on
}

// AcceptUnix returns the next connection, also where the socket is bound anew meanwhile.
func (e *endpoint) AcceptUnix() (*net.UnixConn, error) {
	for {
		on := e.listening()
		c, err := on.AcceptUnix()
		if err == nil || e.listening() == on {
			return c, err
		}
	}
}

// Accept implements net.Listener.
func (e *endpoint) Accept() (net.Conn, error) {
	c, err := e.AcceptUnix()
	if err != nil {
		return nil, err // not c: a nil *net.UnixConn is no nil net.Conn
	}
	return c, nil
}

// Addr implements net.Listener.
func (e *endpoint) Addr() net.Addr { return e.listening().Addr() }

// Close implements net.Listener.
func (e *endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	return e.on.Close()
}

// renew binds the socket anew where its name is gone, or stands for something else. It reports
// whether it has done so. The caller holds the lock of the folder.
func (e *endpoint) renew() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over || e.named() || e.passed && strings.HasPrefix(e.path, "@"):
		return false, nil // an abstract name cannot be removed
	case e.passed:
		return false, &api.Error{
			Code:    api.CodeInternal,
			Message: fmt.Sprintf("%s, which systemd had opened, was removed", e.path),
			Hint:    "sudo systemctl restart netnice.socket netnice.service  makes it anew; limits hold meanwhile",
		}
	}
	on, err := listen(e.path)
	if err != nil {
		return false, err
	}
	old := e.on
	if e.folder != nil {
		err = likeBefore(filepath.Dir(e.path), e.folder)
	}
	e.take(on)
	return true, errors.Join(err, old.Close())
}

// hide takes the socket's name away, so that whoever comes finds no daemon rather than one that
// leaves. One that a service manager has opened stays, and so does what is another's by now.
func (e *endpoint) hide() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.passed || !e.named() {
		return nil
	}
	if err := removeFile(e.path); err != nil {
		return fmt.Errorf("remove the daemon's socket: %w", err)
	}
	return nil
}

// unreachable is what was said last of what keepReachable looks after.
type unreachable struct{ state, callers string }

// keepReachable has callers, and other daemons, find this one: where locks or the socket were
// removed they are made anew. said is what was said last.
func (d *Daemon) keepReachable(said *unreachable) {
	e := d.at.Load()
	if e == nil {
		return // it does not serve yet
	}
	lockAgain := func(l *lock) (bool, error) {
		renewed, err := l.renew()
		if renewed {
			d.log.Warn("a lock of the daemon's was removed, and is held again", "lock", l.file.Name())
		}
		return renewed, err
	}
	hasFolder, state := lockAgain(d.stateLock)
	if hasFolder {
		d.unwritten.tryNow()
		d.folder.note(nil)
	} else {
		d.folder.note(state)
	}
	_, err := lockAgain(d.runLock)
	if err == nil { // else the name may be another daemon's by now
		var renewed bool
		if renewed, err = e.renew(); renewed {
			d.log.Warn("the daemon's socket was removed, and is there again", "socket", e.path)
		}
	}
	d.complainOnce(&said.state, "the state folder is not held", state)
	d.complainOnce(&said.callers, "callers may not find the daemon", err)
}

// listen opens the daemon's socket. The caller holds the lock, so a socket that
// is there was left behind by a daemon that died. The socket appears under its
// name when everybody may connect, and not before; see hide.
func listen(path string) (*net.UnixListener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return nil, inTheWay(path, "a socket", fs.ErrExist)
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	unready := path + ".new"
	if err := os.Remove(unready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, folderError(filepath.Dir(path), fmt.Errorf("remove a dead daemon's socket: %w", err))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: unready, Net: "unix"})
	if err != nil {
		return nil, folderError(filepath.Dir(path), fmt.Errorf("listen on the daemon's socket: %w", err))
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(unready, socketMode), os.Rename(unready, path)); err != nil {
		l.Close()
		_ = os.Remove(unready)
		return nil, fmt.Errorf("open the daemon's socket to all users: %w", err)
	}
	return l, nil
}
