package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/lab/internal/routed"
)

const (
	crossPacket = 1500 // IP bytes of the others' datagrams
	crossPort   = 9000
)

// cross is the cross traffic that competes with the probe.
type cross struct {
	stop    context.CancelFunc
	group   sync.WaitGroup
	closers []io.Closer
	failed  error
}

// startCross sends rate IP bytes/s of a kind: "constant", "poisson", "tcp", or "flood" for the highest possible
// rate.
func startCross(s *routed.Site, kind string, rate float64) (*cross, error) {
	ctx, stop := context.WithCancel(context.Background())
	c := &cross{stop: stop}
	var err error
	if kind == "tcp" {
		err = c.tcp(s, rate)
	} else {
		err = c.datagrams(ctx, s, kind, rate)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *cross) datagrams(ctx context.Context, s *routed.Site, kind string, rate float64) error {
	// The socket has no reader: the kernel drops datagrams at the full buffer, which costs least.
	err := s.Sink.Do(func() error {
		l, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Sink4, crossPort)))
		if err == nil {
			c.closers = append(c.closers, l)
		}
		return err
	})
	if err != nil {
		return err
	}
	var conn *net.UDPConn
	err = s.Others.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Sink4, crossPort)))
		return err
	})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, conn)
	c.group.Go(func() { c.failed = sendDatagrams(ctx, conn, kind, rate) })
	return nil
}

func sendDatagrams(ctx context.Context, conn *net.UDPConn, kind string, rate float64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	payload := make([]byte, crossPacket-28)
	random := rand.New(rand.NewPCG(1, uint64(rate)))
	gap := crossPacket / rate * 1e9
	at := float64(time.Now().UnixNano())
	for ctx.Err() == nil {
		if _, err := conn.Write(payload); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send beside the probe: %w", err)
		}
		switch kind {
		case "flood":
			continue
		case "poisson":
			at += gap * random.ExpFloat64()
		default:
			at += gap
		}
		for d := at - float64(time.Now().UnixNano()); d > 0 && ctx.Err() == nil; d = at - float64(time.Now().UnixNano()) {
			if d > 150e3 {
				time.Sleep(min(time.Duration(d-100e3), 100*time.Millisecond))
			}
		}
	}
	return nil
}

// tcp starts a connection that the kernel paces at the rate.
func (c *cross) tcp(s *routed.Site, rate float64) error {
	var l net.Listener
	err := s.Sink.Do(func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(s.Sink4, crossPort).String())
		return err
	})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, l)
	c.group.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn)
	})
	var conn net.Conn
	err = s.Others.Do(func() (err error) {
		conn, err = net.Dial("tcp4", l.Addr().String())
		return err
	})
	if err != nil {
		return err
	}
	c.closers = append(c.closers, conn)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		// The pacing rate counts packets with Ethernet headers.
		set = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(rate*1514/1500))
	})
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("pace TCP: %w", err)
	}
	c.group.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	return nil
}

// Close ends the traffic.
func (c *cross) Close() error {
	c.stop()
	for _, x := range c.closers {
		_ = x.Close() // ends all calls that wait on it
	}
	c.group.Wait()
	return c.failed
}
