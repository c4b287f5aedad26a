package calls

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// call is one kind of system call to measure.
type call struct {
	name string
	// begin returns a function to repeat, and a function that ends the call's setup.
	begin func() (again func() error, end func(), err error)
}

// figure is the time of one call, in ns.
type figure struct {
	cpu   float64 // time of this thread and of its children
	clock float64
}

func calls() []call {
	tcp := func(f func(fd int) error) func() (func() error, func(), error) {
		return func() (func() error, func(), error) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return func() error { return f(fd) }, func() { _ = unix.Close(fd) }, err
		}
	}
	once := func(f func() error) func() (func() error, func(), error) {
		return func() (func() error, func(), error) { return f, func() {}, nil }
	}
	made := func(family, kind int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}
	}
	return []call{
		{"setsockopt SO_KEEPALIVE", tcp(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1) })},
		{"setsockopt TCP_NODELAY", tcp(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })},
		{"getsockopt SO_TYPE", tcp(func(fd int) error { _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); return err })},
		{"socket and close, TCP", once(made(unix.AF_INET, unix.SOCK_STREAM))},
		{"socket and close, UDP", once(made(unix.AF_INET, unix.SOCK_DGRAM))},
		{"socket and close, unix", once(made(unix.AF_UNIX, unix.SOCK_STREAM))},
		{"vfork, exit, wait", once(fork)},
		{"vfork, exec, exit, wait", once(run)},
	}
}

// fork makes a process that ends at once, since its program does not exist. The child shares the memory of this
// process until then, so no page tables are copied: the copy would be most of the time.
func fork() error {
	_, err := syscall.ForkExec("/nonexistent", []string{"nonexistent"}, &syscall.ProcAttr{})
	if !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("run what is not there: %w", err)
	}
	return nil
}

func run() error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
	if err != nil {
		return fmt.Errorf("run /bin/true: %w", err)
	}
	return wait(pid)
}

func wait(pid int) error {
	for {
		_, err := unix.Wait4(pid, nil, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// batch is the number of calls between two readings of the clock.
const batch = 64

// measure makes the call for a while. The caller has its thread to itself.
func measure(c call, d time.Duration) (f figure, err error) {
	again, end, err := c.begin()
	if err != nil {
		return f, err
	}
	defer end()
	count := batch
	for range 3 { // warms caches, and measures the time of one call
		begin := time.Now()
		if err := again(); err != nil {
			return f, err
		}
		if time.Since(begin) > d/batch {
			count = 1
		}
	}
	cpu, err := cpuTime()
	if err != nil {
		return f, err
	}
	begin := time.Now()
	n := 0
	for time.Since(begin) < d {
		for range count {
			if err := again(); err != nil {
				return f, err
			}
		}
		n += count
	}
	took := time.Since(begin)
	after, err := cpuTime()
	return figure{cpu: float64(after-cpu) / float64(n), clock: float64(took) / float64(n)}, err
}

// cpuTime returns the time of this thread and of the children that it has waited for.
func cpuTime() (sum time.Duration, err error) {
	for _, who := range []int{unix.RUSAGE_THREAD, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return 0, fmt.Errorf("read the CPU time: %w", err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum, nil
}
