package shaping

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

const udpHeaders4, udpHeaders6 = 28, 48

// sending is a limit on what this process sends.
func sending(rate uint64) enforce.NodeSpec {
	spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindTree, Subject: uint64(os.Getpid())}
	spec.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec = rate
	return spec
}

// sink counts the payload that comes to a socket in the other namespace.
func sink(t *testing.T, in *testutil.NetNS, address string) (*net.UDPAddr, *atomic.Int64) {
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

// flood sends datagrams to an address as fast as it may, or at a rate of payload,
// and counts what it has sent and the errors.
func flood(t *testing.T, to *net.UDPAddr, size int, rate float64) (sent, failed *atomic.Int64) {
	t.Helper()
	c, err := net.DialUDP("udp", nil, to)
	must(t, err)
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

// queued waits until there is a queue for what this process sends.
func queued(t *testing.T, k *Kernel) {
	t.Helper()
	begin := time.Now()
	for !k.Attached()["send_out"] {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("no queue")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("a queue was there after %v", time.Since(begin))
}

func TestSentDatagrams(t *testing.T) {
	limit, tolerance := 1e6, 0.01
	if os.Getenv("NETNICE_VM") != "" {
		tolerance = 0.1 // emulated machines are slow
	}
	for _, c := range []struct {
		name, address string
		size          int
		headers       float64
	}{
		{"IPv4", theirs4, 1400, udpHeaders4},
		{"IPv6", theirs6, 1400, udpHeaders6},
		{"small", theirs4, 200, udpHeaders4},
		{"in fragments", theirs4, 4000, udpHeaders4 + 2*20},
	} {
		t.Run(c.name, func(t *testing.T) {
			far := elsewhere(t)
			before := devices(t)
			k := opened(t)
			defer func() { must(t, k.Down()) }()
			to, got := sink(t, far, c.address)
			must(t, k.SetNode(sending(uint64(limit))))
			sent, failed := flood(t, to, c.size, 0)
			time.Sleep(2 * time.Second)
			must(t, k.Maintain())
			from := sent.Load()
			arrived := got.Load()
			held := rate(got, 3*time.Second) * (1 + c.headers/float64(c.size))
			lost := (sent.Load() - from) - (got.Load() - arrived)
			stats, _, err := k.Look(7)
			must(t, err)
			faults, err := k.Counters()
			must(t, err)
			t.Logf("%.4f of the limit, %d bytes on the way, %d failed; %+v %v", held/limit, lost, failed.Load(), stats, faults)
			if held > limit*(1+tolerance) || held < limit*(1-tolerance) {
				t.Errorf("%.0f bytes/s, want %.0f", held, limit)
			}
			if failed.Load() > 0 {
				t.Errorf("%d calls failed", failed.Load())
			}
			if max(lost, -lost) > 100_000 {
				t.Errorf("%d bytes of %d did not arrive", lost, sent.Load()-from)
			}
			must(t, k.RemoveNode(7))
			if again := rate(got, 500*time.Millisecond); again < limit*1.5 {
				t.Errorf("%.0f bytes/s after the limit was lifted", again)
			}
			if now := devices(t); !slices.Equal(now, before) {
				t.Errorf("devices were %q and are %q", before, now)
			}
		})
	}
}

// A sender waits, or is told to try again, as its socket says.
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
	buf, again := make([]byte, 1000), 0
	for range 2000 {
		if err := unix.Sendto(fd, buf, 0, address); errors.Is(err, syscall.EAGAIN) {
			again++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if again == 0 {
		t.Error("a socket that is not to block was never told to try again")
	}
	must(t, unix.SetNonblock(fd, false))
	begin, cpu := time.Now(), cpuTime(t)
	const more = 200
	for range more {
		must(t, unix.Sendto(fd, buf, 0, address))
	}
	took := time.Since(begin)
	t.Logf("%d of 2000 calls refused; %d calls that wait took %v, %v of CPU by all", again, more, took, cpuTime(t)-cpu)
	// half of the limit, or what is left to it
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

// tcpFlood sends over TCP as fast as it may to the other namespace, or at a rate,
// and counts the payload that arrives.
func tcpFlood(t *testing.T, far *testutil.NetNS, address string, rate float64) *atomic.Int64 {
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
		}
	}()
	return count(in)
}

// UDP and TCP share one limit: each gets half of it, or what the other leaves.
func TestDatagramsBesideTCP(t *testing.T) {
	const limit, size, tcpBytes = 4e6, 1400, 1500.0 / 1448
	perUDP := 1 + udpHeaders4/float64(size)
	for _, c := range []struct {
		udp, tcp         float64 // offered, in parts of the limit; 0 = as fast as it may
		wantUDP, wantTCP float64
	}{{0.2, 0, 0.2, 0.8}, {0.5, 0, 0.5, 0.5}, {0.7, 0, 0.5, 0.5}, {0, 0, 0.5, 0.5}, {0, 0.3, 0.7, 0.3}} {
		t.Run(fmt.Sprintf("%g beside %g", c.udp, c.tcp), func(t *testing.T) {
			far := elsewhere(t)
			k := opened(t)
			defer func() { must(t, k.Down()) }()
			to, got := sink(t, far, theirs4)
			must(t, k.SetNode(sending(uint64(limit))))
			sent, failed := flood(t, to, size, c.udp*limit/perUDP)
			tcp := tcpFlood(t, far, theirs4, c.tcp*limit/tcpBytes)
			for range 2 {
				time.Sleep(time.Second)
				must(t, k.Maintain())
			}
			begin, from := time.Now(), [3]int64{got.Load(), tcp.Load(), sent.Load()}
			time.Sleep(3 * time.Second)
			span := time.Since(begin).Seconds()
			udpShare := float64(got.Load()-from[0]) / span * perUDP / limit
			tcpShare := float64(tcp.Load()-from[1]) / span * tcpBytes / limit
			lost := float64(sent.Load()-from[2]-(got.Load()-from[0])) / size
			stats, _, err := k.Look(7)
			must(t, err)
			t.Logf("UDP %.3f, TCP %.3f, sum %.4f of the limit; %.0f datagrams on the way, %d failed, %+v",
				udpShare, tcpShare, udpShare+tcpShare, lost, failed.Load(), stats.Datagrams)
		})
	}
}
