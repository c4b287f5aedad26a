package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// CgroupRoot returns the mount point of cgroup v2: /sys/fs/cgroup, or
// /sys/fs/cgroup/unified on a machine that has v1 beside it. A machine with v1
// only gets enforce.ErrNotSupported.
func (r *Resolver) CgroupRoot() (string, error) {
	if r.cgroup != "" {
		return r.cgroup, nil
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return "", fmt.Errorf("read the mount table: %w", err)
	}
	best := wholeCgroup2(mounts)
	if best == "" && hidden() {
		return "", &api.Error{
			Code:    api.CodeNotSupported,
			Message: "cgroup v2 is hidden from this program (ip netns exec does so), not from the machine's other programs",
			Hint:    "sudo netnice up, outside of it, first; or: sudo nsenter --net=/run/netns/NAME netnice ...",
			Cause:   enforce.ErrNotSupported,
		}
	}
	if best == "" {
		return "", &api.Error{
			Code:    api.CodeNotSupported,
			Message: "cgroup v2 is not mounted on this machine",
			Hint:    "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified  (or boot with systemd.unified_cgroup_hierarchy=1)",
			Cause:   enforce.ErrNotSupported,
		}
	}
	return best, nil
}

// hidden reports whether the machine's first process sees a cgroup v2.
func hidden() bool {
	mounts, err := procfs.GetProcMounts(1)
	return err == nil && slices.ContainsFunc(mounts, func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" })
}

// wholeCgroup2 returns the mount point of cgroup v2, "" = none.
func wholeCgroup2(mounts []*procfs.MountInfo) string {
	best, bestWhole := "", false
	for _, m := range mounts {
		if m.FSType != "cgroup2" || !isCgroup2(m.MountPoint) {
			continue
		}
		// A mount of the whole tree goes before a bind mount of a part of it.
		whole := m.Root == "/"
		if best == "" || whole && !bestWhole || whole == bestWhole && len(m.MountPoint) < len(best) {
			best, bestWhole = m.MountPoint, whole
		}
	}
	return best
}

func isCgroup2(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroupPath resolves a path below the cgroup v2 mount, or an absolute one.
func (r *Resolver) cgroupPath(name string) (Resolved, error) {
	root, err := r.CgroupRoot()
	if err != nil {
		return Resolved{}, err
	}
	rel := belowMount(root, name)
	s := api.Subject{Kind: api.KindCgroup, ID: rel}
	if rel == "/" {
		return Resolved{}, badSubject(s, "the root cgroup is the whole machine", "sudo netnice set --host ...")
	}
	dir := filepath.Join(root, rel)
	id, err := CgroupID(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Resolved{}, notFound(fmt.Sprintf("no cgroup %s under %s", rel, root), "systemd-cgls, or find "+root+" -type d")
	}
	if err != nil {
		return Resolved{}, fmt.Errorf("resolve cgroup %s: %w", rel, err)
	}
	return Resolved{Subject: s, Kind: enforce.KindCgroup, Key: id, Name: path.Base(rel), Dir: dir}, nil
}

// belowMount returns the path of a cgroup below the mount, which starts with a
// slash; name may start with the mount or not.
func belowMount(root, name string) string {
	rel := path.Clean("/" + name)
	if rel == root {
		return "/"
	}
	if below, ok := strings.CutPrefix(rel, root+"/"); ok {
		return "/" + below
	}
	return rel
}

// CgroupID returns the id by which the kernel knows a cgroup v2 folder: its
// inode number. A missing folder is fs.ErrNotExist.
func CgroupID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: unix.ENOTDIR}
	}
	return st.Ino, nil
}

// CgroupByID finds the folder of a cgroup id, "" if it is gone.
func (r *Resolver) CgroupByID(id uint64) (string, error) {
	root, err := r.CgroupRoot()
	if err != nil {
		return "", err
	}
	found := ""
	err = walkCgroups(root, func(dir string) bool {
		if ino, err := CgroupID(dir); err == nil && ino == id {
			found = dir
		}
		return found == ""
	})
	return found, err
}

// ProcessCgroup returns the cgroup v2 path of a process, below the mount.
func (r *Resolver) ProcessCgroup(pid int) (string, error) {
	text, err := os.ReadFile(r.file(pid, "cgroup"))
	if err != nil {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	for _, m := range Memberships(string(text)) {
		if m.Hierarchy == "0" {
			return m.Path, nil
		}
	}
	return "", fmt.Errorf("process %d is in no cgroup v2: %w", pid, enforce.ErrNotSupported)
}

// SystemNamed returns the part of a cgroup's path that no user has chosen. The owner of a cgroup names those inside it,
// as users do with units of their own.
func (r *Resolver) SystemNamed(cgroup string) string {
	root, err := r.CgroupRoot()
	if err != nil {
		return ""
	}
	return systemNamed(cgroup, func(dir string) bool {
		var st unix.Stat_t
		return unix.Stat(filepath.Join(root, dir), &st) == nil && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
	})
}

// systemNamed does the work of SystemNamed. The function isSystems reports whether a cgroup belongs to the system.
func systemNamed(cgroup string, isSystems func(cgroup string) bool) string {
	for end := 1; end <= len(cgroup); end++ {
		if end < len(cgroup) && cgroup[end] != '/' {
			continue
		}
		if around := path.Dir(cgroup[:end]); !isSystems(around) {
			return strings.TrimSuffix(around, "/")
		}
	}
	return cgroup
}

// Membership is a cgroup that a process is in.
type Membership struct {
	Hierarchy   string // "0" for version 2
	Controllers []string
	Path        string
}

// Memberships reads the lines of /proc/PID/cgroup. Users name cgroups of their own, and a name may contain everything
// but a newline and a slash. A reader that takes "\r\n" for the end of a line would find another cgroup.
func Memberships(text string) (list []Membership) {
	for line := range strings.Lines(text) {
		const fields = 3
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", fields)
		if len(f) == fields {
			list = append(list, Membership{Hierarchy: f[0], Controllers: strings.Split(f[1], ","), Path: f[2]})
		}
	}
	return list
}

// CgroupProcesses counts the processes in a cgroup and below it.
func CgroupProcesses(dir string) int {
	n := 0
	// A cgroup that goes away meanwhile counts as empty.
	_ = walkCgroups(dir, func(d string) bool {
		if data, err := os.ReadFile(filepath.Join(d, "cgroup.procs")); err == nil {
			n += strings.Count(string(data), "\n")
		}
		return true
	})
	return n
}

// findUnitDirs returns every cgroup with the unit's name.
func (r *Resolver) findUnitDirs(root, unit string) ([]string, error) {
	var dirs []string
	err := walkCgroups(root, func(dir string) bool {
		if filepath.Base(dir) == unit {
			dirs = append(dirs, dir)
		}
		return true
	})
	return dirs, err
}

// walkCgroups calls visit for root and every folder below it until visit
// returns false. Folders that vanish meanwhile are skipped.
func walkCgroups(root string, visit func(dir string) bool) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && p == root:
			return err
		case err != nil:
			return fs.SkipDir
		case !d.IsDir():
			return nil
		case !visit(p):
			return fs.SkipAll
		}
		return nil
	})
}
