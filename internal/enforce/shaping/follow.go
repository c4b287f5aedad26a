package shaping

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// Some processes pass no program of this package. One only reads from a socket that another process made. Another
// sends by a non-TCP socket that was made elsewhere, and its user or cgroup has changed. A program for them would
// burden the calls of every process. Instead, netnice walks the open files of all processes at most about once a second.

const (
	// followPause is the least time between two walks.
	followPause = time.Second
	// followPart bounds the CPU time of the walks: one part in 200 of the time.
	followPart = 200
)

// follow counts the walks over open files, and knows when the next one may begin.
type follow struct {
	walks uint32
	next  time.Time
}

// look walks the open files and finds the present owners of sockets, unless the last walk was too recent.
func (f *follow) look(base *bpf.Object) error {
	began := time.Now()
	if began.Before(f.next) {
		return nil
	}
	runtime.LockOSThread() // for threadTime; on a busy machine the thread waits most of the time
	defer runtime.UnlockOSThread()
	used := threadTime()
	again, err := f.walk(base)
	if again && err == nil {
		_, err = f.walk(base)
	}
	// The pause is a little shorter than followPause, because a ticker calls this function once a second.
	f.next = began.Add(max(followPause*9/10, followPart*(threadTime()-used)))
	return err
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func (f *follow) walk(base *bpf.Object) (again bool, err error) {
	f.walks++
	return base.FollowFiles(f.walks)
}
