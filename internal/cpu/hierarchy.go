package cpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// hierarchy is the tree of cgroups that has the CPU controller.
type hierarchy struct {
	mount string // mount point
	root  string // mounted part of the tree, "/" = all
	v2    bool
}

// findHierarchy looks for version 1 first: a controller that is mounted there is not in version 2.
func findHierarchy() (hierarchy, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return hierarchy{}, fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range mounts {
		if _, has := m.SuperOptions["cpu"]; has && m.FSType == "cgroup" {
			return hierarchy{mount: m.MountPoint, root: m.Root}, nil
		}
	}
	for _, m := range mounts {
		if m.FSType != "cgroup2" {
			continue
		}
		h := hierarchy{mount: m.MountPoint, root: m.Root, v2: true}
		if h.offers(h.mount, "cgroup.controllers") {
			return h, nil
		}
	}
	return hierarchy{}, fmt.Errorf("the CPU controller is in no mounted cgroup hierarchy: %w", enforce.ErrNotSupported)
}

// of returns the folder of the group that a process is in.
func (h hierarchy) of(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for _, m := range identity.Memberships(string(text)) {
		if h.v2 && m.Hierarchy != "0" || !h.v2 && !slices.Contains(m.Controllers, "cpu") {
			continue
		}
		rel := strings.TrimPrefix(m.Path, strings.TrimSuffix(h.root, "/"))
		return filepath.Join(h.mount, rel), nil
	}
	return "", fmt.Errorf("process %d is in no group of the CPU controller: %w", pid, enforce.ErrNotSupported)
}

// offers reports whether the CPU controller is named in a file of a folder of version 2.
func (h hierarchy) offers(dir, file string) bool {
	text, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(text)), "cpu")
}
