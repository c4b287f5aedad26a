package shaping

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// Who only reads from a socket that another process made is met by no program, nor
// is who sends by one that is no TCP's and was made elsewhere, and whose user or
// cgroup has changed: for that everybody's calls would have to meet one. So open files
// are looked at now and then.

const (
	// followPause is the least time between two looks.
	followPause = time.Second
	// Looks take so small a part of the time at most.
	followPart = 200
)

// follow is when files were looked at.
type follow struct {
	walks uint32
	next  time.Time
}

// look finds whose sockets are by now.
func (f *follow) look(base *bpf.Object) error {
	began := time.Now()
	if began.Before(f.next) {
		return nil
	}
	runtime.LockOSThread() // whose CPU time it is: on a busy machine it waits most of the time
	defer runtime.UnlockOSThread()
	used := threadTime()
	again, err := f.walk(base)
	if again && err == nil {
		_, err = f.walk(base)
	}
	// a little less, for the ticks of a second that call it
	f.next = began.Add(max(followPause*9/10, followPart*(threadTime()-used)))
	return err
}

// threadTime is the CPU time of the calling thread.
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
