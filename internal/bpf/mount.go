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

// ErrNoBPFFS says that there is no file system to pin in, and none can be
// mounted.
var ErrNoBPFFS = errors.New("no BPF file system")

// mounted marks a pin folder whose file system netnice mounted itself, so that
// it can be unmounted when netnice leaves. It is a folder: a BPF file system
// holds nothing else that a program may make.
const mounted = "mounted_by_netnice"

// mountWait bounds how long another netnice is waited for that mounts or unmounts just now.
const mountWait = time.Second

func isBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, err
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}

// ensurePinDir makes the pin folder, and mounts the BPF file system on its
// parent where there is none yet.
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

// lockMount keeps others of netnice from mounting and unmounting there: a second file system would hide what is pinned in
// the first, and one that is unmounted the folder that somebody just made. Anybody may take that lock: who has not got it
// after a second goes on without.
func lockMount(dir string) (unlock func()) {
	above, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return func() {} // nor is there anything to mount on
	}
	for end := time.Now().Add(mountWait); time.Now().Before(end); time.Sleep(mountWait / 50) {
		if !errors.Is(unix.Flock(int(above.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			break
		}
	}
	return func() { _ = above.Close() }
}

// RemovePins detaches every hook found below dir, removes all pins, and
// unmounts the BPF file system if netnice mounted it and nobody else uses it.
// It needs no loaded object. Sockets keep their last pacing rate: release them
// first where an object can be had.
func RemovePins(dir string) error {
	ours, err := removePins(dir)
	if err != nil || !ours {
		return err
	}
	return unmount(filepath.Dir(dir))
}

// removePins empties and removes the pin folder, and says whether netnice
// mounted the file system that it is in.
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

// unmount unmounts a BPF file system unless somebody pins there by now.
func unmount(dir string) error {
	defer lockMount(dir)()
	rest, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	for _, e := range rest {
		if name := e.Name(); name != "maps.debug" && name != "progs.debug" { // the kernel's own
			return nil
		}
	}
	// A daemon that systemd started may not unmount; an empty file system stays, which harms nobody.
	if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}
