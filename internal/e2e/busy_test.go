package e2e

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// cpuLog remembers how busy the machine was and when it stood still, so that a
// rate that falls short while others take its CPUs, or its host does, is not
// blamed on netnice.
type cpuLog struct {
	mu      sync.Mutex
	at      []testutil.Instant
	seconds []float64 // busy or withheld by the host, since boot
	pauses  []pause
}

// pause is a time in which a processor let nobody here wake up.
type pause struct {
	from testutil.Instant
	took time.Duration
}

const (
	pauseEvery = 5 * time.Millisecond
	pauseLeast = 20 * time.Millisecond // that counts
)

// watchWakeups notes when a thread of its own wakes up late: one on each processor, before all
// others, or, where that is not allowed, one anywhere.
func (l *cpuLog) watchWakeups() {
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var only unix.CPUSet
			only.Set(cpu)
			err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
			if err == nil {
				err = unix.SchedSetaffinity(0, &only)
			}
			if err == nil || cpu == 0 {
				l.watchWakeup()
			}
		}()
	}
}

func (l *cpuLog) watchWakeup() {
	for last := testutil.Now(); ; {
		every := unix.NsecToTimespec(pauseEvery.Nanoseconds())
		_ = unix.Nanosleep(&every, nil) // this thread itself, not the Go runtime's timers
		now := testutil.Now()
		if late := now.Sub(last) - pauseEvery; late > pauseLeast {
			l.mu.Lock()
			l.pauses = append(l.pauses, pause{last, late})
			l.mu.Unlock()
		}
		last = now
	}
}

// paused adds up the pauses between two instants.
func (l *cpuLog) paused(from, to testutil.Instant) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pauses {
		sum += max(0, min(to, p.from.Add(p.took)).Sub(max(from, p.from)))
	}
	return sum
}

// cpus is filled by TestMain.
var cpus cpuLog

func (l *cpuLog) watch() {
	for {
		if c, err := testutil.ReadMachineCPU(); err == nil {
			l.mu.Lock()
			l.at, l.seconds = append(l.at, testutil.Now()), append(l.seconds, c.Busy+c.Steal)
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

// excuse says what of the machine may have kept a rate low between two
// instants; "" if nothing. No excuse is one for a rate above its limit. One relay
// or sender alone has a processor busy at half of two.
func (l *cpuLog) excuse(from, to testutil.Instant) string {
	busy, paused := l.busy(from, to), l.paused(from, to)
	if busy < 0.7 && paused.Seconds() < 0.01*to.Sub(from).Seconds() {
		return ""
	}
	return fmt.Sprintf("the CPUs were %.0f%% busy, and for %v a processor let nobody wake up", 100*busy, paused.Round(time.Millisecond))
}
