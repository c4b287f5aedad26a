package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoBPFFS says that there is no BPF file system for the pins, and that none can be mounted.
var ErrNoBPFFS = errors.New("no BPF file system")

// mounted marks a pin folder whose file system netnice mounted itself. netnice unmounts that file system when it
// leaves. The mark is a folder, because a program cannot make a plain file in a BPF file system.
const mounted = "mounted_by_netnice"

// mountWait bounds the wait for another netnice that is mounting or unmounting.
const mountWait = time.Second

func isBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, err
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}

// ensurePinDir makes the pin folder, and mounts the BPF file system on its parent if there is none yet.
func ensurePinDir(dir string) error {
	parent := filepath.Dir(dir)
	defer lockMount(parent)()
	ok, err := isBPFFS(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s does not exist; mount one: mount -t bpf bpf /sys/fs/bpf", ErrNoBPFFS, parent)
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", parent, err)
	}
	ours := false
	if !ok {
		if parent != "/sys/fs/bpf" {
			return fmt.Errorf("%w at %s; mount one: mount -t bpf bpf %s", ErrNoBPFFS, parent, parent)
		}
		if err := unix.Mount("bpf", parent, "bpf", 0, "mode=0700"); err != nil {
			return fmt.Errorf("%w at %s, and mounting one failed: %w; try: mount -t bpf bpf %s", ErrNoBPFFS, parent, err, parent)
		}
		ours = true
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if ours {
		if err := os.Mkdir(filepath.Join(dir, mounted), 0o700); err != nil {
			return fmt.Errorf("mark %s: %w", dir, err)
		}
	}
	return nil
}

// lockMount keeps other netnice processes from mounting and unmounting at dir. A second file system would hide the pins
// in the first. An unmount would take away the folder that another process has just made. Any process may take the
// lock; therefore the caller continues without it after mountWait.
func lockMount(dir string) (unlock func()) {
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return func() {} // there is nothing to mount on either
	}
	for end := time.Now().Add(mountWait); time.Now().Before(end); time.Sleep(mountWait / 50) {
		if !errors.Is(unix.Flock(int(above.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			break
		}
	}
	return func() { _ = above.Close() }
}

// RemovePins detaches every hook found below dir and removes all pins. It unmounts the BPF file system if netnice
// mounted it and nothing else is in it. It needs no loaded object. Sockets keep their last pacing rate, so a caller
// that can load an object releases them first.
func RemovePins(dir string) error {
	ours, err := removePins(dir)
	if err != nil || !ours {
		return err
	}
	return unmount(filepath.Dir(dir))
}

// removePins empties and removes the pin folder. ours is true if netnice mounted the file system that contains it.
func removePins(dir string) (ours bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		ours = ours || e.Name() == mounted
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	if err := errors.Join(append(errs, os.Remove(dir))...); err != nil {
		return false, fmt.Errorf("remove pins: %w", err)
	}
	return ours, nil
}

// unmount unmounts a BPF file system, unless pins of other programs are in it.
func unmount(dir string) error {
	defer lockMount(dir)()
	rest, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	for _, e := range rest {
		if name := e.Name(); name != "maps.debug" && name != "progs.debug" { // the kernel's own entries
			return nil
		}
	}
	// A daemon that systemd started may not unmount. The empty file system then stays, which does no harm.
	if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}
