package bpf

import "golang.org/x/sys/unix"

// NowNS returns the time of the clock by which the programs go (CLOCK_MONOTONIC), in ns; 0 if it cannot be read.
func NowNS() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano())
}
