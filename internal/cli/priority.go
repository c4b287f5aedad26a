package cli

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// urgent is the priority of a daemon that follows rules: what it has to do is short, and
// a program that it is to limit may want all CPUs.
const urgent = -10

// raisePriority gives the process that priority, unless it was started with one of its
// choice or may not have it: it works all the same.
func raisePriority() {
	const ordinary = 20 // what the system call returns for 0
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || now != ordinary {
		return
	}
	for range 2 { // a thread may be made during the first pass
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range threads {
			if tid, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, tid, urgent)
			}
		}
	}
}
