package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// receiving is the state of a receiver process.
type receiving struct {
	cfg   ReceiverConfig
	wire  *wire
	ports map[uint16]*atomic.Uint64 // bytes that connections without a counter of their own had read

	mu      sync.Mutex
	tracked []*receivedConn // by Conn.ID
}

// receivedConn is a connection that has a counter of its own.
type receivedConn struct {
	port uint16
	raw  syscall.RawConn
	read atomic.Uint64 // off the socket
	open atomic.Bool
	seen uint64 // by sample: bytes that had arrived, read or not
}

// runReceiver is the receiver process; it ends when its input ends.
func runReceiver(w *wire, cfg ReceiverConfig) error {
	r := &receiving{cfg: cfg, wire: w, ports: make(map[uint16]*atomic.Uint64)}
	failed := make(chan error, 3)
	if cfg.Cgroup != "" {
		if err := os.WriteFile(filepath.Join(cfg.Cgroup, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	for _, p := range cfg.Ports {
		r.ports[p.Number] = new(atomic.Uint64)
	}
	for _, p := range cfg.Ports {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", p.Number))
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		defer l.Close()
		go func() { failed <- r.accept(l, p) }()
	}
	go func() { failed <- r.orders() }()
	go func() { failed <- r.sample() }()
	if err := w.write(report{Saw: sawReady, PID: os.Getpid(), T: Now()}); err != nil {
		return err
	}
	return <-failed
}

func (r *receiving) orders() error {
	for {
		var o order
		if err := r.wire.in.Decode(&o); err != nil {
			return err
		}
		if o.Do != doInfo {
			return fmt.Errorf("a receiver does not know the order %q", o.Do)
		}
		if err := r.wire.write(report{Saw: doInfo, T: Now(), CPU: ProcessCPU()}); err != nil {
			return err
		}
	}
}

// maxAsked bounds the connections whose sockets each sample queries for arrived bytes. For the others, only the
// bytes that were read are known.
const maxAsked = 64

// sample reports the counters once per interval.
func (r *receiving) sample() error {
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for range tick.C {
		s := Sample{Ports: make(map[uint16]uint64)}
		r.mu.Lock()
		tracked := r.tracked
		r.mu.Unlock()
		for try := 0; try < 3; try++ { // again if this thread had to wait
			begin := Now()
			for i, asked := 0, 0; i < len(tracked); i++ {
				if tracked[i].look(asked < maxAsked) {
					asked++
				}
			}
			if s.T = Now(); s.T.Sub(begin) < r.cfg.Interval/10 {
				break
			}
		}
		for p, n := range r.ports {
			s.Ports[p] = n.Load()
		}
		s.Conns = make([]uint64, len(tracked))
		for i, c := range tracked {
			s.Conns[i] = c.seen
			s.Ports[c.port] += c.seen
		}
		if err := r.wire.write(report{Saw: sawSample, Sample: &s}); err != nil {
			return err
		}
	}
	return nil
}

// look updates seen, and says whether it queried the socket. The count is on time even if the reader gets no
// processor.
func (c *receivedConn) look(ask bool) (asked bool) {
	c.seen = max(c.seen, c.read.Load())
	if !ask || !c.open.Load() {
		return false
	}
	_ = c.raw.Control(func(fd uintptr) { // closed meanwhile: only the bytes that were read count
		ti, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || ti.Bytes_received <= c.seen {
			return
		}
		// In later states the sender's FIN counts as a byte. The kernel reads the state before it reads the bytes.
		const established = 1 // TCP_ESTABLISHED
		after, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && after.State == established {
			c.seen = ti.Bytes_received
		}
	})
	return true
}

func (r *receiving) accept(l net.Listener, p Port) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		own, err := r.track(c.(*net.TCPConn), p)
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if own != nil {
				defer own.open.Store(false)
			}
			r.serve(c.(*net.TCPConn), p, own)
		}()
	}
}

// track announces the connection and returns its counter; nil if there are too many already.
func (r *receiving) track(c *net.TCPConn, p Port) (*receivedConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tracked) >= maxTracked {
		return nil, nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, nil // closed already
	}
	own := &receivedConn{port: p.Number, raw: raw}
	own.open.Store(true)
	conn := &Conn{ID: len(r.tracked), Port: p.Number, Remote: c.RemoteAddr().String(), Opened: Now()}
	if err := r.wire.write(report{Saw: sawConn, Conn: conn}); err != nil {
		return nil, err
	}
	r.tracked = append(r.tracked, own)
	return own, nil
}

// serve reads until the sender closes, and answers requests if the port does.
func (r *receiving) serve(c *net.TCPConn, p Port, own *receivedConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // closed already
	}
	const most = 1 << 20
	size := most
	if p.RequestBytes > 0 {
		size = p.RequestBytes
	}
	buf := make([]byte, size)
	reply := make([]byte, p.ReplyBytes)
	missing := p.RequestBytes // bytes of the present request
	for {
		n, err := discard(raw, buf)
		if err != nil || n == 0 {
			return // the sender closed or reset: the end of the connection
		}
		if own != nil {
			own.read.Add(uint64(n))
		} else {
			r.ports[p.Number].Add(uint64(n))
		}
		if p.RequestBytes == 0 {
			continue
		}
		for missing -= n; missing <= 0; missing += p.RequestBytes {
			if _, err := c.Write(reply); err != nil {
				return
			}
		}
	}
}

// rawConn is the part of syscall.RawConn that discard uses.
type rawConn interface {
	Read(func(fd uintptr) (done bool)) error
}

// discard takes up to len(buf) bytes off the socket without copying them.
func discard(raw rawConn, buf []byte) (int, error) {
	var n int
	var err error
	wait := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if err != unix.EINTR {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	return n, errors.Join(wait, err)
}
