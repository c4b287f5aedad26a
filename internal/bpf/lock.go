package bpf

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process manages this pin folder.
var ErrInUse = errors.New("in use by another netnice daemon")

// ItsSocket stands in a remedy for the socket of another netnice, which this package does not know.
const ItsSocket = "ITS_SOCKET"

// useOtherHint names the commands that use the other netnice, or end it.
const useOtherHint = "use it: netnice --socket " + ItsSocket + " ... (pgrep -af 'netnice daemon' shows which)\n" +
	"or end it: sudo netnice --socket " + ItsSocket + " down"

// InUseError is ErrInUse for a folder.
type InUseError struct{ Dir string }

func (e *InUseError) Error() string { return fmt.Sprintf("%s is %v", e.Dir, ErrInUse) }

// Unwrap returns ErrInUse.
func (e *InUseError) Unwrap() error { return ErrInUse }

// Hint names the remedies. The lock on the mount of the cgroups is held for seconds only, while the other one comes up.
func (e *InUseError) Hint() string {
	return "run the command again, if the other one is just coming up\n" + useOtherHint
}

// lockWait bounds the wait for the lock on the pin folder. A guard holds it for some milliseconds, and a killed daemon
// until its last file is closed.
const lockWait = time.Second

// lockPinDir makes the pin folder and locks it for this process. The lock ends with the returned file, also when the
// process is killed.
func lockPinDir(dir string) (*os.File, error) {
	return lockWithin(lockWait, 5*time.Millisecond, func() (f *os.File, again bool, err error) {
		if err := ensurePinDir(dir); err != nil {
			return nil, false, err
		}
		f, err = lockDir(dir)
		// The previous holder may have removed the folder meanwhile.
		return f, errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInUse), err
	})
}

// lockWithin calls try at intervals of every, until try reports that it need not be called again, or until wait has
// passed.
func lockWithin(wait, every time.Duration, try func() (f *os.File, again bool, err error)) (*os.File, error) {
	for deadline := time.Now().Add(wait); ; time.Sleep(every) {
		f, again, err := try()
		if !again || time.Now().After(deadline) {
			return f, err
		}
	}
}

// lockDir locks an existing folder. It returns ErrInUse if another process has the lock.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &InUseError{Dir: dir}
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	here, err := os.Stat(dir)
	locked, err2 := f.Stat()
	if err := errors.Join(err, err2); err != nil || !os.SameFile(here, locked) {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s, which goes: %w", dir, errors.Join(err, os.ErrNotExist))
	}
	return f, nil
}
