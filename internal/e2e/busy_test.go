package e2e

import (
	"runtime"
	"sync"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// cpuLog remembers how busy the machine was, so that a rate that falls short
// while others take all of its CPUs is not blamed on netnice.
type cpuLog struct {
	mu      sync.Mutex
	at      []testutil.Instant
	seconds []float64 // busy since boot
}

// cpus is filled by TestMain.
var cpus cpuLog

func (l *cpuLog) watch() {
	for {
		if c, err := testutil.ReadMachineCPU(); err == nil {
			l.mu.Lock()
			l.at, l.seconds = append(l.at, testutil.Now()), append(l.seconds, c.Busy)
			l.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// busy is the part of all CPUs' time that was used between two instants.
func (l *cpuLog) busy(from, to testutil.Instant) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last := -1, -1
	for i, at := range l.at {
		if at >= from && first < 0 {
			first = i
		}
		if at <= to {
			last = i
		}
	}
	if first < 0 || last <= first {
		return 1 // too busy even to look
	}
	return (l.seconds[last] - l.seconds[first]) / l.at[last].Sub(l.at[first]).Seconds() / float64(runtime.NumCPU())
}
