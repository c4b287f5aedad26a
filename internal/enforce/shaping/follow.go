package shaping

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// Some processes pass no program of this package. One only reads from a socket that another process made. Another
// sends by a non-TCP socket that was made elsewhere, and its user or cgroup has changed. A program for them would
// burden the calls of every process. So netnice looks at open files now and then.

const (
	// followPause is the least time between two looks.
	followPause = time.Second
	// followPart bounds the part of the time that the looks take: 1 in 200.
	followPart = 200
)

// follow remembers the looks at open files.
type follow struct {
	walks uint32
	next  time.Time
}

// look finds the present owners of sockets.
func (f *follow) look(base *bpf.Object) error {
	began := time.Now()
	if began.Before(f.next) {
		return nil
	}
	runtime.LockOSThread() // the CPU time is the thread's; on a busy machine it waits most of the time
	defer runtime.UnlockOSThread()
	used := threadTime()
	again, err := f.walk(base)
	if again && err == nil {
		_, err = f.walk(base)
	}
	// The pause is a little shorter, because the ticks of a second call this function.
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
