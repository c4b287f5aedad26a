package overhead

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// These are the measured kinds of traffic.
const (
	kindTCP = "TCP throughput"
	kindRR  = "TCP round trip"
	kindUDP = "UDP send"
)

// figure is one short measurement: operations (bytes, round trips, datagrams) by the clock, and by the CPU time of
// the threads that performed them. Other load on the machine hardly affects the latter; see meter.
type figure struct {
	ops       float64
	perSecond float64
	perCPU    float64 // per CPU second
}

const (
	port    = 5001
	writes  = 64 << 10 // bytes of one write, TCP throughput
	payload = 64       // bytes of payload
)

// measure runs one kind of traffic from a namespace to an address in another one (or the same), over new sockets.
func measure(kind string, from, into *testbed.NetNS, to netip.Addr, d time.Duration) (figure, error) {
	if kind == kindUDP {
		return datagrams(from, into, to, d)
	}
	out, in, err := connection(from, into, to)
	if err != nil {
		return figure{}, err
	}
	defer unix.Close(in)
	defer unix.Close(out)
	var stop atomic.Bool
	other, tid := make(chan thread, 1), make(chan int, 1)
	go func() {
		if kind == kindRR {
			other <- onCPU(0, tid, func() (float64, error) { return 0, reflect(in) })
			return
		}
		other <- onCPU(1, tid, func() (float64, error) { return discard(in, &stop) })
	}()
	m := meter{other: <-tid}
	// This side has a thread of its own, too. The round trip has both threads on one CPU, where only the work itself
	// counts: no sleeping CPU has to wake up.
	mine := make(chan thread, 1)
	go func() {
		mine <- onCPU(0, nil, func() (float64, error) {
			m.begin()
			if kind == kindRR {
				return ping(out, d, &m)
			}
			return write(out, d, &m)
		})
	}()
	t := <-mine
	stop.Store(true)
	// The end of the stream ends the other thread.
	t.err = errors.Join(t.err, unix.Shutdown(out, unix.SHUT_RDWR))
	o := <-other
	if err := errors.Join(t.err, o.err); err != nil {
		return figure{}, fmt.Errorf("%s: %w", kind, err)
	}
	ops, elapsed := t.ops, t.elapsed
	if kind == kindTCP {
		ops, elapsed = o.ops, o.elapsed
	}
	return figure{ops: ops, perSecond: ops / elapsed, perCPU: m.perCPU(ops, t.cpu+o.cpu)}, nil
}

// thread holds the results of one thread.
type thread struct {
	ops, elapsed, cpu float64 // seconds
	err               error
}

// onCPU calls fn on a thread that runs on one CPU only and ends afterwards. It sends the thread's id to tid, unless
// that is nil.
func onCPU(cpu int, tid chan<- int, fn func() (float64, error)) (t thread) {
	runtime.LockOSThread() // never unlocked: the runtime ends the thread
	if tid != nil {
		tid <- unix.Gettid()
	}
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	if t.err = unix.SchedSetaffinity(0, &set); t.err != nil {
		return t
	}
	begin, used := testbed.Now(), threadCPU()
	t.ops, t.err = fn()
	t.elapsed, t.cpu = testbed.Now().Sub(begin).Seconds(), threadCPU()-used
	return t
}

func threadCPU() float64 { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

// cpuOf returns the CPU time of a thread of this process, in seconds.
func cpuOf(tid int) float64 {
	const perThread, sched = 4, 2 // parts of the kernel's clock ids for threads
	return clock(int32(^tid<<3 | perThread | sched))
}

func clock(id int32) float64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // cannot fail while the thread lives
	return float64(ts.Nano()) / 1e9
}

// meter takes the CPU time of both threads in slices of a millisecond. Other load on the machine makes some slices
// dearer (caches, interrupts), and none cheaper. The bound of the cheapest quarter therefore shows the cost of the work
// itself.
type meter struct {
	other int // second thread, 0 = none
	costs []float64

	cpu, ops float64
	calls    int
}

const slice = 1e-3 // seconds of CPU time

func (m *meter) now() float64 {
	cpu := threadCPU()
	if m.other != 0 {
		cpu += cpuOf(m.other)
	}
	return cpu
}

func (m *meter) begin() { m.cpu = m.now() }

// add counts operations; it reads the clocks now and then.
func (m *meter) add(ops float64) {
	m.ops += ops
	if m.calls++; m.calls%16 > 0 {
		return
	}
	if now := m.now(); now-m.cpu >= slice {
		m.costs = append(m.costs, (now-m.cpu)/m.ops)
		m.cpu, m.ops = now, 0
	}
}

// perCPU returns operations per CPU second. With too few slices it uses all operations and all time.
func (m *meter) perCPU(ops, cpu float64) float64 {
	if len(m.costs) < 4 {
		return ops / cpu
	}
	slices.Sort(m.costs)
	return 1 / m.costs[len(m.costs)/4]
}

// connection makes a connected pair of blocking TCP sockets.
func connection(from, into *testbed.NetNS, to netip.Addr) (out, in int, err error) {
	listener, err := bound(into, unix.SOCK_STREAM, to)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(listener)
	if out, err = socket(from, unix.SOCK_STREAM); err != nil {
		return 0, 0, err
	}
	if err := unix.Connect(out, address(to)); err != nil {
		return 0, 0, errors.Join(fmt.Errorf("connect: %w", err), unix.Close(out))
	}
	if in, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC); err != nil {
		return 0, 0, errors.Join(fmt.Errorf("accept: %w", err), unix.Close(out))
	}
	for _, fd := range []int{in, out} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return 0, 0, errors.Join(fmt.Errorf("set TCP_NODELAY: %w", err), unix.Close(out), unix.Close(in))
		}
	}
	return out, in, nil
}

func address(a netip.Addr) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
}

func socket(n *testbed.NetNS, kind int) (fd int, err error) {
	err = n.Do(func() error {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	return fd, nil
}

func bound(n *testbed.NetNS, kind int, to netip.Addr) (int, error) {
	fd, err := socket(n, kind)
	if err != nil {
		return -1, err
	}
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, address(to)))
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("listen: %w", err), unix.Close(fd))
	}
	return fd, nil
}

// write fills the connection for the given time.
func write(fd int, d time.Duration, m *meter) (float64, error) {
	buf := make([]byte, writes)
	for end := testbed.Now().Add(d); testbed.Now() < end; {
		n, err := unix.Write(fd, buf)
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		m.add(float64(max(0, n)))
	}
	return 0, nil
}

// discard counts the bytes until the end of the stream.
func discard(fd int, stop *atomic.Bool) (float64, error) {
	buf := make([]byte, 1<<20)
	var sum float64
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case stop.Load() || (err == nil && n == 0):
			return sum, nil
		case err != nil:
			return sum, err
		}
		sum += float64(n)
	}
}

// ping sends a byte and waits for one, for the given time.
func ping(fd int, d time.Duration, m *meter) (float64, error) {
	b := make([]byte, 1)
	trips := 0.0
	for end := testbed.Now().Add(d); testbed.Now() < end; trips++ {
		if err := exchange(fd, b); err != nil {
			return trips, err
		}
		m.add(1)
	}
	return trips, nil
}

func exchange(fd int, b []byte) error {
	if _, err := unix.Write(fd, b); err != nil {
		return err
	}
	for {
		n, err := unix.Read(fd, b)
		if err == nil && n == 0 {
			return unix.EPIPE
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// reflect sends back all bytes until the end of the stream.
func reflect(fd int) error {
	b := make([]byte, 1)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.ECONNRESET || (err == nil && n == 0):
			return nil
		case err != nil:
			return err
		default:
			// If the other end is closed, the next read says so.
			_, _ = unix.Write(fd, b)
		}
	}
}

// datagrams sends as fast as it can to a socket that nobody reads. The kernel drops the excess at the socket's
// buffer, after the whole path.
func datagrams(from, into *testbed.NetNS, to netip.Addr, d time.Duration) (f figure, err error) {
	in, err := bound(into, unix.SOCK_DGRAM, to)
	if err != nil {
		return f, err
	}
	defer unix.Close(in)
	out, err := socket(from, unix.SOCK_DGRAM)
	if err != nil {
		return f, err
	}
	defer unix.Close(out)
	if err := unix.Connect(out, address(to)); err != nil {
		return f, fmt.Errorf("connect: %w", err)
	}
	done := make(chan thread, 1)
	var m meter
	go func() {
		done <- onCPU(0, nil, func() (float64, error) {
			m.begin()
			buf := make([]byte, payload)
			sent := 0.0
			for end := testbed.Now().Add(d); testbed.Now() < end; sent++ {
				if _, err := unix.Write(out, buf); err != nil && err != unix.EINTR && err != unix.ENOBUFS {
					return sent, err
				}
				m.add(1)
			}
			return sent, nil
		})
	}()
	t := <-done
	if t.err != nil {
		return f, fmt.Errorf("%s: %w", kindUDP, t.err)
	}
	return figure{ops: t.ops, perSecond: t.ops / t.elapsed, perCPU: m.perCPU(t.ops, t.cpu)}, nil
}
