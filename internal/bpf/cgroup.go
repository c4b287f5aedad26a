package bpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// kernfsHandle is the type of a file handle that is a cgroup's id (FILEID_KERNFS).
const kernfsHandle = 0xfe

// CgroupPath returns the path of a cgroup below the root, "/" for the root itself. It returns an error if the cgroup is
// gone, or is not below the root.
func (o *Object) CgroupPath(id uint64) (string, error) {
	root, err := unix.Open(o.opts.CgroupRoot, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", o.opts.CgroupRoot, err)
	}
	defer unix.Close(root)
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(root, handle, unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open cgroup %d: %w", id, err)
	}
	defer unix.Close(fd)
	base, err := pathOf(root)
	if err != nil {
		return "", err
	}
	dir, err := pathOf(fd)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(base, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("cgroup %d is %s, not below %s", id, dir, base)
	}
	path := filepath.Join("/", rel)
	// The path of a cgroup outside the root may look like a path below the root.
	if now, err := o.cgroupID(path); err != nil || now != id {
		return "", fmt.Errorf("cgroup %d is not at %s: %w", id, dir, err)
	}
	return path, nil
}

func pathOf(fd int) (string, error) {
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", fmt.Errorf("look where a cgroup is: %w", err)
	}
	return path, nil
}

// cgroupID returns the id of the cgroup at a path below the root.
func (o *Object) cgroupID(path string) (uint64, error) {
	var st unix.Stat_t
	dir := filepath.Join(o.opts.CgroupRoot, path)
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", dir, err)
	}
	return st.Ino, nil
}
