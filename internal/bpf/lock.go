package bpf

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process manages this pin folder.
var ErrInUse = errors.New("in use by another netnice daemon")

// lockPinDir makes the pin folder and locks it for this process. The lock goes
// with the returned file, also when the process is killed.
func lockPinDir(dir string) (*os.File, error) {
	// A former owner may remove the folder between our open and our lock.
	for range 10 {
		if err := ensurePinDir(dir); err != nil {
			return nil, err
		}
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dir, err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s is %w", dir, ErrInUse)
			}
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		here, err := os.Stat(dir)
		locked, err2 := f.Stat()
		if err == nil && err2 == nil && os.SameFile(here, locked) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("%s comes and goes: %w", dir, ErrInUse)
}
