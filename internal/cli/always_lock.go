package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// rulesLockName is the name of the lock file in a folder of rules. No rules are read from a file of that name.
	rulesLockName = ".always.lock"
	// rulesLockPatience is how long a command waits for another command that adds a rule in the same folder.
	rulesLockPatience = 5 * time.Second
	// rulesLockPoll is the pause between two attempts to take the lock.
	rulesLockPoll = 5 * time.Millisecond
)

// lockRules makes a folder of rules and locks it against other commands that add a rule there. The caller reads the
// rules, writes the new file and then calls unlock. The lock is a file that only its owner may open: flock(2) lets
// every process lock a file or a folder that it may read. A command that is killed leaves the file behind unlocked,
// and the next command removes it.
func lockRules(folder string) (unlock func(), err error) {
	if err := makeRulesFolder(folder); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, rulesLockName)
	for deadline := time.Now().Add(rulesLockPatience); ; time.Sleep(rulesLockPoll) {
		f, err := tryRulesLock(path)
		switch {
		case err == nil:
			return func() {
				_ = os.Remove(path) // while the lock is held: a command that waits opens a new file then
				f.Close()
			}, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, notWritten(folder, "lock the folder of rules", err)
		case time.Now().After(deadline):
			return nil, failWith(exitFailed, "run the command again", "another command adds a rule in %s; none was added", folder)
		}
	}
}

// tryRulesLock opens and locks the lock file. The error is EWOULDBLOCK if another command holds the lock, or has
// removed the file since it was opened.
func tryRulesLock(path string) (*os.File, error) {
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
