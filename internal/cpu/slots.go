package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
)

// driver makes the slices of groups end on time. The kernel sees that a quota is used up when a
// processor schedules, which may be as late as its tick, 4 ms. Therefore a thread on every processor, which precedes
// all others, wakes up as slices begin and as they end, and sleeps on. The driver never stops a group: the quota
// does, and groups go on when it is renewed, even without the driver.
type driver struct {
	mu    sync.Mutex
	beats map[string]*beat // key: the group's folder
	// playing lists the groups with a known rhythm, nil when the threads are to end. The threads read the list, and
	// nobody changes it after it is stored.
	playing atomic.Pointer[[]rhythm]
	threads sync.WaitGroup
	running bool
}

// rhythm says when slices begin and end: at phaseNS, a period later, and so on, on the monotonic clock.
type rhythm struct{ phaseNS, periodNS, sliceNS uint64 }

// beat is a group that has exact slices.
type beat struct {
	share   Share
	stop    context.CancelFunc
	phaseNS atomic.Uint64
	known   atomic.Bool
}

// KeepSlots makes the slices of these groups, named by their folders, end on time, and those of no others. The
// error is enforce.ErrNotSupported on a machine that does not let a thread precede others.
func (m *Machine) KeepSlots(groups map[string]Share) error { return m.driver.keep(groups) }

const (
	// late is the delay of the threads' wake-ups. At the end of a slice the quota is then used up; at the beginning
	// the kernel's own timer has renewed it.
	late = 20 * time.Microsecond
	// longestSleep is the time after which the threads look for new groups at the latest.
	longestSleep = 20 * time.Millisecond
	// shortSleep is the sleep below which a thread sleeps without the Go runtime's knowledge. Handing the thread's
	// part of the scheduler on and taking it back takes twice as long as the sleep itself. Other goroutines may wait
	// for up to shortSleep when the runtime collects garbage.
	shortSleep = 2 * time.Millisecond
	// findAgain is the interval at which a rhythm is measured again, because the kernel may stretch periods that it
	// cannot keep.
	findAgain = 10 * time.Second
)

// keep makes the slices of these groups, named by their folders, end on time, and those of no others.
func (d *driver) keep(groups map[string]Share) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for dir, b := range d.beats {
		if groups[dir] != b.share {
			b.stop()
			delete(d.beats, dir)
		}
	}
	if len(groups) == 0 {
		d.stop()
		return nil
	}
	if err := d.start(); err != nil {
		return err
	}
	for dir, s := range groups {
		if d.beats[dir] == nil {
			d.beats[dir] = d.begin(dir, s)
		}
	}
	d.publish()
	return nil
}

// start starts the threads. The caller holds d.mu.
func (d *driver) start() error {
	if d.running {
		return nil
	}
	d.beats = make(map[string]*beat)
	d.publish()
	n := Online()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n) // a thread in napUntil occupies a slot of the scheduler
	ready := make(chan error, n)
	for cpu := range n {
		d.threads.Go(func() { d.wake(cpu, ready) })
	}
	var err error
	for range n {
		err = errors.Join(err, <-ready)
	}
	d.running = true
	if err != nil {
		d.stop()
		return fmt.Errorf("have threads precede others, for slots: %w: %w", err, enforce.ErrNotSupported)
	}
	return nil
}

// stop ends the threads. The caller holds d.mu.
func (d *driver) stop() {
	if !d.running {
		return
	}
	d.playing.Store(nil)
	d.threads.Wait()
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0)-Online(), 1))
	d.running = false
}

// publish hands the known rhythms to the threads. The caller holds d.mu.
func (d *driver) publish() {
	list := make([]rhythm, 0, len(d.beats))
	for b := range maps.Values(d.beats) {
		if b.known.Load() {
			list = append(list, rhythm{phaseNS: b.phaseNS.Load(), periodNS: b.share.PeriodNS, sliceNS: b.share.SliceNS})
		}
	}
	d.playing.Store(&list)
}

// wake is the loop of one processor's thread.
func (d *driver) wake(cpu int, ready chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread, and its priority, end with this goroutine
	err := precede(cpu)
	ready <- err
	if err != nil {
		return
	}
	for {
		list := d.playing.Load()
		if list == nil {
			return
		}
		now := monotonicNS()
		at := now + uint64(longestSleep)
		for _, r := range *list {
			at = min(at, r.next(now))
		}
		if at-now < uint64(shortSleep) {
			napUntil(at)
		} else {
			sleepUntil(at)
		}
	}
}

// precede binds the calling thread to a processor, on which it comes before others.
func precede(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the processor is offline
		return fmt.Errorf("bind a thread to processor %d: %w", cpu, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("SCHED_FIFO: %w", err)
	}
	return nil
}

// next returns the first time to wake up after now.
func (r rhythm) next(nowNS uint64) uint64 {
	begin := nowNS - (nowNS-r.phaseNS)%r.periodNS
	for {
		for _, at := range [...]uint64{begin, begin + r.sliceNS} {
			if at += uint64(late); at > nowNS {
				return at
			}
		}
		begin += r.periodNS
	}
}

func monotonicNS() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock always exists
	return uint64(t.Nano())
}

func sleepUntil(ns uint64) {
	t := unix.NsecToTimespec(int64(ns))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil) // a signal only costs an extra round
}

// napUntil does what sleepUntil does, without the runtime's knowledge.
func napUntil(ns uint64) {
	t := unix.NsecToTimespec(int64(ns))
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&t)), 0, 0, 0) // as in sleepUntil
}

// begin starts a goroutine that measures a group's rhythm, and measures it again from time to time.
func (d *driver) begin(dir string, s Share) *beat {
	ctx, stop := context.WithCancel(context.Background())
	b := &beat{share: s, stop: stop}
	go func() {
		for {
			again := findAgain
			if phase, ok := findPhase(ctx, dir, s.PeriodNS); ok {
				b.phaseNS.Store(phase)
				b.known.Store(true)
				d.retell(b)
			} else {
				again = time.Second / 10 // its processes sleep, or the group does not exist yet
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
		}
	}()
	return b
}

// retell publishes a group's new rhythm to the threads, if the driver still has the group.
func (d *driver) retell(b *beat) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other := range maps.Values(d.beats) {
		if other == b && d.running {
			d.publish()
		}
	}
}

// The group's statistics count periods as they begin. To find a rhythm, findPhase reads the count at closer and
// closer intervals around the expected beginning of the next period.
const (
	closeEnough = 30 * time.Microsecond // sufficient time between the last look before a period and the first one after
	farEnough   = 300 * time.Microsecond
	findTries   = 20
	closer      = 8
	ahead       = 100 * time.Microsecond // how long before the expected beginning the looks start
)

// findPhase finds the time at which a group's periods begin. The kernel counts no periods while the group's processes
// sleep.
func findPhase(ctx context.Context, dir string, periodNS uint64) (phaseNS uint64, ok bool) {
	stat, err := os.Open(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, false
	}
	defer stat.Close()
	best := periodNS
	pause := periodNS / closer
	for range findTries {
		at, within, ok := nextPeriod(ctx, stat, pause, monotonicNS()+2*periodNS+uint64(longestSleep))
		if !ok {
			return phaseNS, best <= uint64(farEnough)
		}
		if within < best {
			phaseNS, best = at, within
		}
		if best <= uint64(closeEnough) {
			break
		}
		if pause = within / closer; pause < uint64(closeEnough) {
			pause = 0
		}
		if periodNS > 2*uint64(ahead) {
			sleepUntil(at + periodNS - uint64(ahead))
		}
	}
	return phaseNS, best <= uint64(farEnough)
}

// nextPeriod reads the count until another period has begun. atNS is the time of the last look before that, and
// withinNS the time from that look to the next one.
func nextPeriod(ctx context.Context, stat io.ReaderAt, pauseNS, untilNS uint64) (atNS, withinNS uint64, ok bool) {
	var last uint64
	for first := true; ; first = false {
		before := monotonicNS()
		if before > untilNS || ctx.Err() != nil {
			return 0, 0, false
		}
		count, err := periods(stat)
		if err != nil {
			return 0, 0, false
		}
		if !first && count != last {
			return atNS, monotonicNS() - atNS, true
		}
		atNS, last = before, count
		if pauseNS > 0 {
			sleepUntil(before + pauseNS)
		}
	}
}

// periods returns the number of periods in a group's statistics.
func periods(stat io.ReaderAt) (uint64, error) {
	var buffer [1024]byte
	n, err := stat.ReadAt(buffer[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	_, rest, found := bytes.Cut(buffer[:n], []byte("nr_periods "))
	number, _, _ := bytes.Cut(rest, []byte("\n"))
	if !found {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(string(number), 10, 64)
}
