package identity

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Watch learns at once when a process ends, without a thread of its own. The methods of a nil Watch know of no end.
type Watch struct {
	file *os.File
	over atomic.Bool
	done chan struct{}
	// lastName is the name of the program that the process ran at its end, "" if its parent reaped it before. It is
	// written before over.
	lastName string
}

// Watch watches the process pid that started at startNS. It calls onEnd once, from another goroutine, when the process
// has ended.
func (r *Resolver) Watch(pid int, startNS uint64, onEnd func()) (*Watch, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	// The start time shows only now that the pidfd belongs to the right process.
	if !r.Alive(pid, startNS) {
		file.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, unix.ESRCH)
	}
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	w := &Watch{file: file, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		err := conn.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return err == nil && n > 0
		})
		if err == nil {
			w.lastName, _ = r.LastName(pid, startNS)
			w.over.Store(true)
			onEnd()
		}
	}()
	return w, nil
}

// HasEnded reports whether the process has ended. It returns false without a watch, where that is unknown.
func (w *Watch) HasEnded() bool { return w != nil && w.over.Load() }

// LastName returns the name of the program that the process ran at its end, "" if it is not known, or if HasEnded
// returns false.
func (w *Watch) LastName() string {
	if !w.HasEnded() {
		return ""
	}
	return w.lastName
}

// Stop ends the watch.
func (w *Watch) Stop() {
	if w == nil {
		return
	}
	w.file.Close()
	<-w.done
}
