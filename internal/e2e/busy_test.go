package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
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
	dropped []uint64  // packets that had come to any device here, since boot
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
			n := backlogDropped()
			l.mu.Lock()
			l.at, l.seconds, l.dropped = append(l.at, testutil.Now()), append(l.seconds, c.Busy+c.Steal), append(l.dropped, n)
			l.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// backlogDropped is how many packets the kernel has dropped that had come to a device: what waits for a
// processor to receive it is in one queue of 1,000 for all devices of all namespaces, which another
// test's flood fills. A connection whose last segment is among them stands still for 0.2 s.
func backlogDropped() (sum uint64) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) { // one for each processor
		if fields := strings.Fields(line); len(fields) > 1 {
			n, _ := strconv.ParseUint(fields[1], 16, 64) // the kernel's
			sum += n
		}
	}
	return sum
}

// looks are the first and the last from one instant to another, false if there are no two.
func (l *cpuLog) looks(from, to testutil.Instant) (first, last int, some bool) {
	first, last = -1, -1
	for i, at := range l.at {
		if at >= from && first < 0 {
			first = i
		}
		if at <= to {
			last = i
		}
	}
	return first, last, first >= 0 && last > first
}

// lost is how many packets were dropped that had come, from about one instant to another.
func (l *cpuLog) lost(from, to testutil.Instant) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last, some := l.looks(from, to)
	if !some {
		return 0
	}
	return l.dropped[last] - l.dropped[max(first-1, 0)]
}

// busy is the part of all CPUs' time that was used between two instants.
func (l *cpuLog) busy(from, to testutil.Instant) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last, some := l.looks(from, to)
	if !some {
		return 1 // too busy even to look
	}
	return (l.seconds[last] - l.seconds[first]) / l.at[last].Sub(l.at[first]).Seconds() / float64(runtime.NumCPU())
}

// From these parts of a span of time on it is disturbed: processors that are busy, and one that lets nobody wake up, or an
// emulated path that nobody runs. One relay or sender alone has a processor busy at half of two.
const (
	disturbedBusy  = 0.7
	disturbedStill = 0.01
)

// isDisturbed is the one definition of that: who does not judge what was measured in a span goes by it (excuse), and who
// measures again (judge).
func isDisturbed(busy float64, still, span time.Duration) bool {
	return busy >= disturbedBusy || still.Seconds() >= disturbedStill*span.Seconds()
}

// disturbance says what may have kept a rate low between two instants, in which an emulated path stood still for so long; "" if
// nothing. It is no excuse for a rate above its limit.
func (l *cpuLog) disturbance(from, to testutil.Instant, stalled time.Duration) string {
	busy, paused := l.busy(from, to), l.paused(from, to)
	if !isDisturbed(busy, max(paused, stalled), to.Sub(from)) {
		return ""
	}
	text := fmt.Sprintf("the CPUs were %.0f%% busy, and for %v a processor let nobody wake up", 100*busy, paused.Round(time.Millisecond))
	if stalled > 0 {
		text += fmt.Sprintf(", and the path stood still for %v", stalled)
	}
	return text
}

// excuse is disturbance without an emulated path.
func (l *cpuLog) excuse(from, to testutil.Instant) string { return l.disturbance(from, to, 0) }

// aftereffect says what before or in a span may have TCP send less in it although the machine was not disturbed meanwhile: a
// disturbed second before, or lost packets. That is a reason to measure again, and no excuse. "" = nothing.
func (l *cpuLog) aftereffect(from, to testutil.Instant) string {
	if earlier := l.excuse(from.Add(-aftermath), from); earlier != "" {
		return "in the second before " + earlier
	}
	if lost := l.lost(from.Add(-aftermath), to); lost > 0 {
		return fmt.Sprintf("%d packets were dropped before they were received, of this or another test", lost)
	}
	return ""
}
