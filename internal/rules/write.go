package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const (
	// lockName is the name of the lock file in a folder of rules. No rules are read from a file of that name.
	lockName = ".always.lock"
	// lockPatience is how long a command waits for another command that adds a rule in the same folder.
	lockPatience = 5 * time.Second
	// lockPoll is the pause between two attempts to take the lock.
	lockPoll = 5 * time.Millisecond
)

// WriteError says that a file of rules could not be written into a folder, or the folder not be made or locked.
type WriteError struct {
	Folder string
	Action string // such as "write the rule"
	Err    error
}

func (e *WriteError) Error() string { return fmt.Sprintf("%s: %v", e.Action, e.Err) }
func (e *WriteError) Unwrap() error { return e.Err }

// ErrLocked says that another command adds a rule in a folder.
var ErrLocked = errors.New("another command adds a rule there")

// LockFolder makes a folder of rules and locks it against other commands that add a rule there. The caller reads the
// rules, writes the new file and then calls unlock. The lock is a file that only its owner may open: flock(2) lets
// every process lock a file or a folder that it may read. A command that is killed leaves the file behind unlocked,
// and the next command removes it.
func LockFolder(folder string) (unlock func(), err error) {
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, lockName)
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPoll) {
		f, err := tryLock(path)
		switch {
		case err == nil:
			return func() {
				_ = os.Remove(path) // while the lock is held: a command that waits opens a new file then
				f.Close()
			}, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, &WriteError{folder, "lock the folder of rules", err}
		case time.Now().After(deadline):
			return nil, fmt.Errorf("lock the folder of rules: %w", ErrLocked)
		}
	}
}

// tryLock opens and locks the lock file. The error is EWOULDBLOCK if another command holds the lock, or has
// removed the file since it was opened.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	locked, err := f.Stat()
	there, err2 := os.Lstat(path)
	switch err := errors.Join(err, err2); {
	case errors.Is(err, os.ErrNotExist), err == nil && !os.SameFile(locked, there):
		f.Close()
		return nil, fmt.Errorf("lock %s, which was removed: %w", path, unix.EWOULDBLOCK)
	case err != nil:
		f.Close()
		return nil, err
	}
	return f, nil
}

// Write writes the file by renaming a new one, so that no reader sees half of it. A file that is there keeps its mode.
func (a *Addition) Write() error {
	const readable = 0o644
	folder := filepath.Dir(a.Path)
	if err := makeFolder(folder); err != nil {
		return err
	}
	if err := renameio.WriteFile(a.Path, a.Text, readable, renameio.WithTempDir(folder)); err != nil {
		return &WriteError{folder, "write the rule", err}
	}
	return nil
}

// makeFolder makes a folder of rules that everybody may read, and the folders on the way to it.
func makeFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return &WriteError{folder, "make the folder of rules", err}
	}
	return nil
}
