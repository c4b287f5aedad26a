package shaping

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

const (
	udpHeaders4, udpHeaders6 = 28, 48
	segment                  = 1200 // bytes of each of the segments that one call hands over
)

// sending returns a node that limits the egress of this process.
func sending(rate uint64) enforce.NodeSpec {
	spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindTree, Subject: uint64(os.Getpid())}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = rate
	return spec
}

// sink counts the payload that comes to a socket in the other namespace.
func sink(t *testing.T, in *testbed.NetNS, address string) (*net.UDPAddr, *atomic.Int64) {
	t.Helper()
	var c *net.UDPConn
	must(t, in.Do(func() (err error) {
		c, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadBuffer(4 << 20)
	return c.LocalAddr().(*net.UDPAddr), count(c)
}

// flood sends datagrams to an address at a rate of payload in bytes/s, or as fast as it may if rate is 0. It counts the
// payload that was sent, and the errors.
func flood(t *testing.T, to *net.UDPAddr, size int, rate float64) (sent, failed *atomic.Int64) {
	t.Helper()
	c, err := net.DialUDP("udp", nil, to)
	must(t, err)
	return floodOver(t, c, size, rate)
}

// floodOver does the same over a socket, which it closes when the test ends.
func floodOver(t *testing.T, c *net.UDPConn, size int, rate float64) (sent, failed *atomic.Int64) {
	t.Helper()
	if size > 9000 { // the device cuts them into segments, or the kernel just before it
		setOption(t, c, unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment)
	}
	t.Cleanup(func() { _ = c.Close() })
	sent, failed = new(atomic.Int64), new(atomic.Int64)
	go func() {
		buf, begin, at := make([]byte, size), time.Now(), 0.0
		for {
			if rate > 0 {
				time.Sleep(time.Duration(at/rate*1e9) - time.Since(begin))
			}
			at += float64(size)
			_, err := c.Write(buf)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				failed.Add(1)
			default:
				sent.Add(int64(size))
			}
		}
	}()
	return sent, failed
}

// queued waits until there is a queue for non-TCP egress.
func queued(t *testing.T, k *Kernel) {
	t.Helper()
	begin := time.Now()
	for !k.Attached()["send_out"] {
		if time.Since(begin) > patient(20*time.Second) {
			t.Fatal("no queue")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("a queue was there after %v", time.Since(begin))
}

// settled waits until the queue's rate has settled.
func settled(t *testing.T, k *Kernel) {
	t.Helper()
	queued(t, k)
	time.Sleep(time.Second)
	must(t, k.Maintain())
}

// tolerance returns how far from the limit a rate may be. Emulated machines are slow, and may be further off.
func tolerance(usual float64) float64 {
	if os.Getenv("NETNICE_VM") != "" {
		return 0.15
	}
	return usual
}

func TestSentDatagrams(t *testing.T) {
	const limit = 1e6
	far := elsewhere(t)
	before := devices(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	for _, c := range []struct {
		name, address string
		size          int
		headers       float64
		before        bool // the flood begins before the limit
	}{
		{"IPv4", theirs4, 1400, udpHeaders4, true},
		{"IPv6 in fragments", theirs6, 4000, udpHeaders6 + 2*40 + 3*8, false},
		{"IPv4 in segments", theirs4, 10 * segment, 10 * udpHeaders4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			to, got := sink(t, far, c.address)
			var sent, failed *atomic.Int64
			if c.before {
				sent, failed = flood(t, to, c.size, 0)
				must(t, k.SetNode(sending(limit)))
			} else {
				must(t, k.SetNode(sending(limit)))
				sent, failed = flood(t, to, c.size, 0)
			}
			settled(t, k)
			from, arrived := sent.Load(), got.Load()
			held := rate(got, 1500*time.Millisecond) * (1 + c.headers/float64(c.size))
			lost := (sent.Load() - from) - (got.Load() - arrived)
			stats, _, err := k.Look(7)
			must(t, err)
			faults, err := k.Counters()
			must(t, err)
			t.Logf("%.4f of the limit, %d bytes on the way, %d failed; %+v %v", held/limit, lost, failed.Load(), stats, faults)
			if within := tolerance(0.02 + 2*float64(c.size)/(1.5*limit)); held > limit*(1+within) || held < limit*(1-within) {
				t.Errorf("%.0f bytes/s, want %.0f", held, limit)
			}
			if failed.Load() > 0 {
				t.Errorf("%d calls failed", failed.Load())
			}
			if max(lost, -lost) > 150_000 { // at times 150 KB are under way
				t.Errorf("%d bytes of %d did not arrive", lost, sent.Load()-from)
			}
			must(t, k.RemoveNode(7))
			k.Drain()
			if again := rate(got, 500*time.Millisecond); again < limit*1.5 {
				t.Errorf("%.0f bytes/s after the limit was lifted", again)
			}
			if now := devices(t); !slices.Equal(now, before) {
				t.Errorf("devices were %q and are %q", before, now)
			}
		})
	}
}

// TestDatagramsWait checks that a sender waits, or gets EAGAIN if its socket is non-blocking.
func TestDatagramsWait(t *testing.T) {
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	to, _ := sink(t, far, theirs4)
	must(t, k.SetNode(sending(500_000)))
	_, _ = flood(t, to, 1000, 0)
	queued(t, k)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	address := &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}
	buf := make([]byte, 1000)
	again := refused(t, fd, buf, address)
	begin, cpu := time.Now(), cpuTime(t)
	const more = 200
	for range more {
		must(t, unix.Sendto(fd, buf, 0, address))
	}
	took := time.Since(begin)
	t.Logf("%d of 2000 calls refused; %d calls that wait took %v, %v of CPU by all", again, more, took, cpuTime(t)-cpu)
	// The sender gets half of the limit, or what the flood leaves.
	if least := more * 1000 * time.Second / 500_000; took < least*9/10 {
		t.Errorf("%d datagrams of 1000 bytes were sent in %v", more, took)
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tcpFlood sends over TCP to the other namespace at a rate, or as fast as it may if rate is 0. It counts the payload
// that arrives.
func tcpFlood(t *testing.T, far *testbed.NetNS, address string, rate float64) *atomic.Int64 {
	t.Helper()
	var l net.Listener
	must(t, far.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	}))
	out, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	in, err := l.Accept()
	must(t, err)
	t.Cleanup(func() { _, _, _ = in.Close(), l.Close(), out.Close() })
	go func() {
		begin := time.Now()
		for buf, at := make([]byte, 16<<10), 0.0; ; at += float64(len(buf)) {
			if rate > 0 {
				time.Sleep(time.Duration(at/rate*1e9) - time.Since(begin))
			}
			if _, err := out.Write(buf); err != nil {
				return
			}
			if rate == 0 {
				pause(len(buf))
			}
		}
	}()
	return count(in)
}

// setOption sets an option of a socket to a number.
func setOption(t *testing.T, c syscall.Conn, level, option, value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, value) }))
	must(t, err)
}

// roomForStalls gives a socket a send buffer that keeps the limit used while its sender gets no processor for some
// 100 ms. With the usual buffer the test would measure those stalls.
func roomForStalls(t *testing.T, c *net.UDPConn) {
	t.Helper()
	setOption(t, c, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 512<<10)
}

// TestDatagramsBesideTCP checks that UDP and TCP share one limit. Each gets half of it, or what the other leaves.
func TestDatagramsBesideTCP(t *testing.T) {
	const limit, size, tcpBytes = 4e6, 1400, 1500.0 / 1448
	perUDP := 1 + udpHeaders4/float64(size)
	far := elsewhere(t)
	before := devices(t)
	k := opened(t)
	for _, c := range []struct {
		udp, tcp         float64 // offered, in parts of the limit; 0 = as fast as it may
		wantUDP, wantTCP float64
		alone            bool // the daemon ends in the test, and the limit has to hold without it
	}{{0.2, 0, 0.2, 0.8, false}, {0, 0.3, 0.7, 0.3, false}, {0, 0, 0.5, 0.5, true}} {
		t.Run(fmt.Sprintf("%g beside %g", c.udp, c.tcp), func(t *testing.T) {
			to, got := sink(t, far, theirs4)
			must(t, k.SetNode(sending(uint64(limit))))
			out, err := net.DialUDP("udp", nil, to)
			must(t, err)
			roomForStalls(t, out)
			_, failed := floodOver(t, out, size, c.udp*limit/perUDP)
			tcp := tcpFlood(t, far, theirs4, c.tcp*limit/tcpBytes)
			if c.udp == 0 {
				settled(t, k)
			} else {
				time.Sleep(time.Second)
			}
			shares := func() (udp, stream float64) {
				begin, u, s := time.Now(), got.Load(), tcp.Load()
				time.Sleep(4 * time.Second) // packets that waited for a late reader before the window are a small part of it
				span := time.Since(begin).Seconds() * limit
				return float64(got.Load()-u) * perUDP / span, float64(tcp.Load()-s) * tcpBytes / span
			}
			udp, stream := shares()
			stats, _, err := k.Look(7)
			must(t, err)
			t.Logf("UDP %.3f, TCP %.3f, sum %.4f of the limit; %d failed, %+v", udp, stream, udp+stream, failed.Load(), stats.Datagrams)
			within := tolerance(0.05)
			if math.Abs(udp-c.wantUDP) > within || math.Abs(stream-c.wantTCP) > within || udp+stream > 1+within {
				t.Errorf("UDP %.3f and TCP %.3f of the limit, want %.3f and %.3f", udp, stream, c.wantUDP, c.wantTCP)
			}
			if !c.alone {
				must(t, k.RemoveNode(7))
				k.Drain()
				return
			}
			must(t, k.Close())
			udp, stream = shares()
			t.Logf("while nobody looks after it UDP %.3f, TCP %.3f, sum %.4f of the limit", udp, stream, udp+stream)
			if udp+stream > 1+within || stream < 0.5-2*within {
				t.Errorf("while nobody looks after it UDP %.3f and TCP %.3f of the limit", udp, stream)
			}
			again, err := Open(options())
			must(t, err)
			if !again.Attached()["send_out"] {
				t.Error("the queue was not taken over")
			}
			must(t, again.Down())
			if now := devices(t); !slices.Equal(now, before) {
				t.Errorf("devices were %q and are %q", before, now)
			}
		})
	}
}

// refused sends 2000 datagrams by a non-blocking socket, and returns how many calls got EAGAIN. Then it makes the
// socket blocking.
func refused(t *testing.T, fd int, buf []byte, to unix.Sockaddr) (again int) {
	t.Helper()
	for range 2000 {
		if err := unix.Sendto(fd, buf, 0, to); errors.Is(err, syscall.EAGAIN) {
			again++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if again == 0 {
		t.Error("a socket that is not to block was never told to try again")
	}
	must(t, unix.SetNonblock(fd, false))
	return again
}

// TestSentSlowly checks a low limit, at which the backlog in a socket's buffer lasts for minutes. In this time nothing
// more comes into the queue. The backlog still leaves at the limit, also if it was ahead of the clock at first.
func TestSentSlowly(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSentDatagrams, at a higher rate")
	const limit, size = 3500, 1400
	far := elsewhere(t)
	k := opened(t)
	defer func() { must(t, k.Down()) }()
	to, came := sink(t, far, theirs4)
	must(t, k.SetNode(sending(limit)))
	flood(t, to, size, 0)
	queued(t, k)
	time.Sleep(patient(5 * time.Second))
	begin, before := time.Now(), came.Load()
	time.Sleep(20 * time.Second)
	perSec := float64(came.Load()-before) * (size + udpHeaders4) / size / time.Since(begin).Seconds()
	t.Logf("%.3f of the limit", perSec/limit)
	if off := tolerance(0.05); perSec < limit*(1-off) || perSec > limit*(1+off) {
		t.Errorf("%.3f of the limit", perSec/limit)
	}
}
