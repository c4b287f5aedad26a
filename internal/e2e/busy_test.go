package e2e

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// cpuLog records how busy the machine was and when it stood still. A rate can fall short because other programs take
// the CPUs, or because the host withholds them. The tests do not blame netnice for such a rate.
type cpuLog struct {
	mu      sync.Mutex
	at      []testbed.Instant
	seconds []float64 // busy or withheld by the host, since boot
	dropped []uint64  // packets dropped after they had reached a device here, since boot
	pauses  []pause
}

// pause is a span of time in which a processor let no thread here wake up.
type pause struct {
	from testbed.Instant
	took time.Duration
}

const (
	pauseEvery = 5 * time.Millisecond
	pauseLeast = 20 * time.Millisecond // shorter ones do not count
)

// watchWakeups notes when a thread of its own wakes up late. One thread runs on each processor, with priority over
// all others. Where that is not allowed, one thread runs on any processor.
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
	for last := testbed.Now(); ; {
		every := unix.NsecToTimespec(pauseEvery.Nanoseconds())
		_ = unix.Nanosleep(&every, nil) // sleeps in this thread itself, without the Go runtime's timers
		now := testbed.Now()
		if late := now.Sub(last) - pauseEvery; late > pauseLeast {
			l.mu.Lock()
			l.pauses = append(l.pauses, pause{last, late})
			l.mu.Unlock()
		}
		last = now
	}
}

// paused adds up the pauses between two instants.
func (l *cpuLog) paused(from, to testbed.Instant) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pauses {
		sum += max(0, min(to, p.from.Add(p.took)).Sub(max(from, p.from)))
	}
	return sum
}

// cpus is the log that TestMain fills.
var cpus cpuLog

func (l *cpuLog) watch() {
	for {
		if c, err := testbed.ReadMachineCPU(); err == nil {
			n := backlogDropped()
			l.mu.Lock()
			l.at, l.seconds, l.dropped = append(l.at, testbed.Now()), append(l.seconds, c.Busy+c.Steal), append(l.dropped, n)
			l.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// backlogDropped returns how many packets the kernel has dropped after they had reached a device. Packets that wait
// for a processor to receive them share one queue of 1,000 for all devices of all namespaces, and another test's
// flood fills that queue. A connection stands still for 0.2 s if the queue drops its last segment.
func backlogDropped() (sum uint64) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) { // one for each processor
		if fields := strings.Fields(line); len(fields) > 1 {
			n, _ := strconv.ParseUint(fields[1], 16, 64) // the kernel writes hexadecimal
			sum += n
		}
	}
	return sum
}

// looks returns the indices of the first and the last sample between two instants; some is false if there are not
// two.
func (l *cpuLog) looks(from, to testbed.Instant) (first, last int, some bool) {
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

// lost returns how many received packets the backlog dropped, from about one instant to another.
func (l *cpuLog) lost(from, to testbed.Instant) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last, some := l.looks(from, to)
	if !some {
		return 0
	}
	return l.dropped[last] - l.dropped[max(first-1, 0)]
}

// busy returns the part of all CPUs' time that was used between two instants.
func (l *cpuLog) busy(from, to testbed.Instant) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, last, some := l.looks(from, to)
	if !some {
		return 1 // the machine was too busy even for the samples
	}
	return (l.seconds[last] - l.seconds[first]) / l.at[last].Sub(l.at[first]).Seconds() / float64(runtime.NumCPU())
}

// A span of time is disturbed if the processors are busy for at least disturbedBusy of it. It is also disturbed if,
// for disturbedStill of it, a processor lets no thread wake up or no program runs an emulated path. One relay or
// sender alone keeps one processor of two busy: a half.
const (
	disturbedBusy  = 0.7
	disturbedStill = 0.01
)

// isDisturbed is the one definition of a disturbed span. Tests that skip the verdict on such a span use it (excuse),
// and so do tests that measure again (judge).
func isDisturbed(busy float64, still, span time.Duration) bool {
	return busy >= disturbedBusy || still.Seconds() >= disturbedStill*span.Seconds()
}

// disturbance returns what may have kept a rate low between two instants, or "" if there is no reason. An emulated
// path stood still for the time stalled between them. A disturbance is no excuse for a rate above its limit.
func (l *cpuLog) disturbance(from, to testbed.Instant, stalled time.Duration) string {
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
func (l *cpuLog) excuse(from, to testbed.Instant) string { return l.disturbance(from, to, 0) }

// excused reports whether the machine was disturbed between two instants, and logs it: the verdict is left out then.
func excused(t testing.TB, from, to testbed.Instant) bool {
	t.Helper()
	excuse := cpus.excuse(from, to)
	if excuse != "" {
		t.Logf("not judged: %s", excuse)
	}
	return excuse != ""
}

// aftereffect names an event before or in a span that may slow TCP down in it, though the machine was undisturbed
// meanwhile: a disturbed second before, or lost packets. Such an event is a reason to measure again, but no excuse.
// aftereffect returns "" if there was none.
func (l *cpuLog) aftereffect(from, to testbed.Instant) string {
	if earlier := l.excuse(from.Add(-aftermath), from); earlier != "" {
		return "in the second before " + earlier
	}
	if lost := l.lost(from.Add(-aftermath), to); lost > 0 {
		return fmt.Sprintf("%d packets were dropped before they were received, of this or another test", lost)
	}
	return ""
}
