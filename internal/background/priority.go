package background

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// urgent is the priority of a daemon that follows rules. Its work is short, and a program that it is about to limit may
// use all CPUs.
const urgent = -10

// RaisePriority gives the process the urgent priority, unless it was started with another priority than the ordinary
// one. A process that may not have the priority works all the same.
func RaisePriority() {
	const ordinary = 20 // the system call returns this for the nice value 0
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
