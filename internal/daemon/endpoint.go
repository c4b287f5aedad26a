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
	"github.com/netnice/netnice/internal/failure"
	"github.com/netnice/netnice/internal/statefile"
)

// endpoint is the socket for callers. Its name may disappear while the daemon runs, for instance if somebody empties
// /run, or mounts something there. Callers could not reach the daemon then, so the daemon binds the name again. It
// checks the name at each tick, which occurs anyway. A watch would not notice a mount over the folder.
type endpoint struct {
	path   string
	passed bool // a service manager has opened the socket, and looks after its name

	mu     sync.Mutex // guards the fields after it
	on     *net.UnixListener
	bound  fs.FileInfo // the file with the name at the time; nil: none
	folder fs.FileInfo // the folder of the name; nil: unknown
	over   bool        // the daemon leaves, or is about to serve again
}

func newEndpoint(path string, on *net.UnixListener, passed bool) *endpoint {
	e := &endpoint{path: path, passed: passed}
	e.take(on)
	return e
}

// take makes a listener the one for callers.
func (e *endpoint) take(on *net.UnixListener) {
	e.on, e.bound = on, nil
	if info, err := os.Lstat(e.path); err == nil {
		e.bound = info
	}
	if info, err := os.Stat(filepath.Dir(e.path)); err == nil && e.folder == nil {
		e.folder = info
	}
}

// named reports whether the name still refers to the socket. The caller holds e.mu.
func (e *endpoint) named() bool {
	info, err := os.Lstat(e.path)
	return err == nil && e.bound != nil && os.SameFile(info, e.bound)
}

func (e *endpoint) listening() *net.UnixListener {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.on
}

// AcceptUnix returns the next connection, also if the socket is bound again meanwhile.
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

// renew binds the socket again if its name is gone, or refers to something else. It reports whether it has done so. The
// caller holds the lock of the folder.
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

// hide removes the socket's name, so that new callers find no daemon instead of one that leaves. A socket that a
// service manager has opened keeps its name. A name that another daemon uses meanwhile stays, too.
func (e *endpoint) hide() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.passed || !e.named() {
		return nil
	}
	if err := statefile.RemoveFile(e.path); err != nil {
		return fmt.Errorf("remove the daemon's socket: %w", err)
	}
	return nil
}

// unreachable has the failures of keepReachable.
type unreachable struct{ state, callers failure.Lasting }

// keepReachable lets callers and other daemons find this one: it restores locks and the socket after somebody has
// removed them. said has its failures.
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
	hasFolder, state := lockAgain(d.locks.state)
	if hasFolder {
		d.files.TryNow()
		d.folder.note(nil)
	} else {
		d.folder.note(state)
	}
	_, err := lockAgain(d.locks.run)
	if err == nil { // otherwise the name may belong to another daemon
		var renewed bool
		if renewed, err = e.renew(); renewed {
			d.log.Warn("the daemon's socket was removed, and is there again", "socket", e.path)
		}
	}
	said.state.Note(d.log, "the state folder is not held", state)
	said.callers.Note(d.log, "callers may not find the daemon", err)
}

// listen opens the daemon's socket. The caller holds the lock, so an existing socket was left by a daemon that died.
// The socket gets its name only once everybody may connect; see hide.
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
