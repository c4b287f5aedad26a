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

// Paths returns a path for each network namespace with a wanted inode number. If wanted is nil, it returns one for
// every namespace that a process is in or that has a name. It tries the paths in first before all others.
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
			continue // no namespace has a name there
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

// Within runs f on a thread of its own in the network namespace at path. It is no error if the namespace has gone
// meanwhile.
func Within(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread of a process does not end. It would stay in the namespace and keep it alive. Therefore
			// another thread runs f while this one waits.
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

// Of returns the inode number of a process's network namespace. process is the name of its folder in /proc.
func Of(process string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+process+"/ns/net", &st); err != nil {
		return 0, fmt.Errorf("look at the network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}

// PathOf returns a path of a network namespace, by its inode number. It returns "" if no process is in the namespace
// and it has no name.
func PathOf(ns uint32) string {
	for _, path := range Paths(map[uint32]bool{ns: true}) {
		return path
	}
	return ""
}
