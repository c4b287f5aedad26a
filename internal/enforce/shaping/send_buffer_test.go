package shaping

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
)

const stampedBytes = 1400 // size of each datagram

// stamped is a flood of datagrams that carry the time when they were sent. The receiver records how long each was on
// its way.
type stamped struct {
	t     *testing.T
	fd    int
	begin time.Time
	bytes atomic.Int64 // payload that arrived
	mu    sync.Mutex
	waits []time.Duration
	stop  func()
}

func stampedFlood(t *testing.T, in *testbed.NetNS) *stamped {
	t.Helper()
	var to *net.UDPConn
	must(t, in.Do(func() (err error) {
		to, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(theirs4)})
		return err
	}))
	t.Cleanup(func() { _ = to.Close() })
	must(t, to.SetReadBuffer(4<<20))
	// The socket is blocking: a thread that waits in the call wakes up as soon as the buffer has room. A goroutine
	// would wake up when the runtime gets to it.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	remote := to.LocalAddr().(*net.UDPAddr)
	must(t, unix.Connect(fd, &unix.SockaddrInet4{Port: remote.Port, Addr: [4]byte(remote.IP.To4())}))
	s := &stamped{t: t, fd: fd, begin: time.Now()}
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, stampedBytes); !over.Load(); {
			binary.NativeEndian.PutUint64(buf, uint64(time.Since(s.begin)))
			if _, err := unix.Write(fd, buf); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("send: %v", err)
				return
			}
		}
	}()
	s.stop = sync.OnceFunc(func() {
		over.Store(true)
		<-ended
		_ = unix.Close(fd)
	})
	t.Cleanup(s.stop)
	go s.receive(to)
	return s
}

func (s *stamped) receive(c *net.UDPConn) {
	for buf := make([]byte, 1<<16); ; {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if n != stampedBytes {
			continue
		}
		s.bytes.Add(int64(n))
		s.mu.Lock()
		s.waits = append(s.waits, time.Since(s.begin)-time.Duration(binary.NativeEndian.Uint64(buf)))
		s.mu.Unlock()
	}
}

// median returns the median time on the way of the datagrams since the last call.
func (s *stamped) median() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := s.waits
	s.waits = nil
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[len(waits)/2]
}

// buffer returns the size of the send buffer that the program reads (told), and the real size (is).
func (s *stamped) buffer() (told, is int) {
	s.t.Helper()
	told, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	must(s.t, err)
	var info [9]uint32 // SO_MEMINFO fills it
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		s.t.Fatal(errno)
	}
	return told, int(info[3])
}

func soon(t *testing.T, what string, within time.Duration, done func() bool) {
	t.Helper()
	within = patient(within)
	for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// patient returns a bound in time, which is longer on an emulated machine, as that may be slow.
func patient(bound time.Duration) time.Duration {
	if os.Getenv("NETNICE_VM") != "" {
		return 5 * bound
	}
	return bound
}

// TestSentBuffer checks that a program's datagrams do not wait long for its earlier ones under a low limit, since its
// buffer is kept in proportion. The program reads the size that it had, may set another, and gets it back.
func TestSentBuffer(t *testing.T) {
	const limit, size = 64e3, stampedBytes
	far := elsewhere(t)
	k := opened(t)
	s := stampedFlood(t, far)
	own, _ := s.buffer()
	must(t, k.SetNode(sending(limit)))
	queued(t, k)
	small := func() bool { _, is := s.buffer(); return is < own/8 }
	soon(t, "a small buffer", 30*time.Second, small)
	if told, _ := s.buffer(); told != own {
		t.Errorf("the program reads a buffer of %d, which was %d", told, own)
	}
	if os.Getenv("NETNICE_VM") == "" {
		time.Sleep(2500 * time.Millisecond) // until the former content of the buffer has left
		s.median()
		near(t, "limited", limit, tolerance(0.03), func() float64 { return rate(&s.bytes, 2*time.Second) * perDatagram })
		wait := s.median()
		t.Logf("a datagram waits %v", wait)
		if wait > 300*time.Millisecond {
			t.Errorf("a datagram waited for %v for those of its own socket", wait)
		}
	}
	// A datagram in many fragments gets through, though the first one may not.
	soon(t, "a large datagram is sent", 10*time.Second, func() bool {
		_, err := unix.Write(s.fd, make([]byte, 40000))
		return err == nil
	})
	const wish = 70000
	must(t, unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, wish))
	if told, _ := s.buffer(); told != 2*wish {
		t.Errorf("the program reads a buffer of %d, and has set %d", told, 2*wish)
	}
	must(t, k.RemoveNode(7))
	k.Drain()
	if told, is := s.buffer(); told != 2*wish || is != 2*wish {
		t.Errorf("after the limit the buffer is %d and read as %d, not %d", is, told, 2*wish)
	}
	// After the end of the daemon, Down gives the size back, too.
	s.stop()
	s = stampedFlood(t, far)
	must(t, k.SetNode(sending(limit)))
	soon(t, "a small buffer again", 30*time.Second, small)
	must(t, k.Close())
	if told, is := s.buffer(); told != own || is == told {
		t.Errorf("after the daemon the buffer is %d and read as %d, not %d", is, told, own)
	}
	must(t, Down(options()))
	if told, is := s.buffer(); told != own || is != own {
		t.Errorf("after all the buffer is %d and read as %d, not %d", is, told, own)
	}
}

// TestBufferFor checks that a buffer has room for the share of its socket in bufferTime, for some packets, and for the
// largest datagram.
func TestBufferFor(t *testing.T) {
	const own = 212992
	spec := enforce.NodeSpec{ID: 5}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = 500_000
	s := &sender{nodes: map[uint32]*outgoing{
		5: {spec: spec, rates: map[uint64]float64{77: 200_000}},
		6: {spec: spec, rates: map[uint64]float64{5: 400_000}},
	}}
	record := func(queued, used, largest uint32, nodes ...uint32) (r bpf.BufferRecord) {
		r.SizeBytes, r.QueuedBytes, r.UsedBytes, r.LargestBytes = own, queued, used, largest
		child := uint64(77)
		for i, n := range nodes {
			r.Hops[i].Node, r.Hops[i].Child = n, child
			child = uint64(n)
		}
		return r
	}
	for _, c := range []struct {
		what    string
		r       bpf.BufferRecord
		sockets int // sockets that have packets in the queue
		want    uint32
	}{
		{"a share", record(10_000, 20_000, 1000, 5), 1, 40_000},
		{"two levels", record(10_000, 20_000, 1000, 5, 6), 1, 40_000},
		{"one of eight", record(10_000, 20_000, 100, 5), 8, 5000},
		{"some packets", record(10_000, 20_000, 1500, 5), 100, 13_500},
		{"large ones", record(10_000, 15_000, 20_000, 5), 100, 60_000},
		{"as large as they get", record(60_000, 120_000, 60_000, 5), 1, 0},
		{"nobody limits it", record(10_000, 20_000, 1000, 9), 1, 0},
	} {
		among := sharers{}
		for range c.sockets {
			among[sharer{0, 5, 77}]++
		}
		if got := s.bufferFor(&c.r, among); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		own, size, used, want uint32
		differs               bool
	}{
		{0, own, 10_000, 40_000, false}, // its packets do not wait long
		{0, own, 55_000, 40_000, false},
		{0, own, 65_000, 40_000, true},
		{0, own, 60_000, 0, false},
		{own, 40_000, 30_000, 0, true},
		{own, 40_000, 30_000, 42_000, false},
		{own, 40_000, 0, 80_000, true},
	} {
		r := bpf.BufferRecord{OwnBytes: c.own, SizeBytes: c.size, UsedBytes: c.used}
		if got := bufferDiffers(&r, c.want); got != c.differs {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
