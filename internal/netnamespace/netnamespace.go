// Package netnamespace finds network namespaces and runs code in them. It knows
// nothing of limits.
package netnamespace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Paths returns a path for each network namespace of the wanted inode
// numbers (nil: for every one that a process is in or that has a name). Those
// that are given first are looked at first.
func Paths(wanted map[uint32]bool, first ...string) []string {
	found := map[string]string{}
	done := func() bool { return wanted != nil && len(found) == len(wanted) }
	look := func(path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || wanted != nil && !wanted[uint32(st.Ino)] {
			return
		}
		key := fmt.Sprint(st.Ino)
		if _, ok := found[key]; !ok {
			found[key] = path
		}
	}
	for _, path := range first {
		look(path)
	}
	look("/proc/self/ns/net")
	for _, dir := range []string{"/run/netns", "/run/docker/netns"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // none there
		}
		for _, e := range entries {
			look(filepath.Join(dir, e.Name()))
		}
	}
	if !done() {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			if done() {
				break
			}
			if strings.Trim(e.Name(), "0123456789") == "" {
				look(filepath.Join("/proc", e.Name(), "ns/net"))
			}
		}
	}
	out := make([]string, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	return out
}

// Within runs f on a thread of its own in the network namespace at path.
// A namespace that has gone meanwhile is no error.
func Within(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread does not end: it would stay there, and keep the
			// namespace alive. It is kept busy meanwhile.
			defer runtime.UnlockOSThread()
			result <- Within(path, f)
			return
		}
		// Never unlocked: the thread ends with the goroutine.
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- nil
			return
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Of is the inode number of the network namespace of a process, by its name below /proc.
func Of(process string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+process+"/ns/net", &st); err != nil {
		return 0, fmt.Errorf("look at the network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}

// PathOf is a path of a namespace that a process is in or that has a name, "" if
// there is none.
func PathOf(ns uint32) string {
	for _, path := range Paths(map[uint32]bool{ns: true}) {
		return path
	}
	return ""
}
