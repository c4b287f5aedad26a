package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rttEvery    = 10 * time.Millisecond  // interval in which a sender reads its round trips
	reportEvery = 100 * time.Millisecond // interval in which it reports them
)

// sending is the state of a sender process.
type sending struct {
	cfg  SenderConfig
	to   netip.AddrPort
	wire *wire

	fds     []int // sockets of every mode except Short; closed only at the end
	buf     []byte
	started Instant
	cpu     float64 // CPU time used before the start
	work    sync.WaitGroup
	stop    atomic.Bool

	written           atomic.Int64
	completed, failed atomic.Int64

	mu       sync.Mutex
	open     map[int]struct{} // sockets in use now
	ended    []ConnInfo       // connections that wrote all their Bytes
	latency  []Point
	children []*Sender
	// nextWriteAt is the instant at which UpToBytesPerSec allows the next write.
	nextWriteAt Instant
}

// runSender is the sender process; it ends after the order to stop, or when its input ends.
func runSender(w *wire, cfg SenderConfig) error {
	cfg = cfg.withDefaults()
	to, err := netip.ParseAddrPort(cfg.To)
	if err != nil {
		return fmt.Errorf("receiver's address: %w", err)
	}
	s := &sending{cfg: cfg, to: to, wire: w, open: make(map[int]struct{})}
	s.buf = make([]byte, max(cfg.WriteSize, cfg.ShortBytes, cfg.RequestBytes, cfg.ReplyBytes))
	if err := w.write(report{Saw: sawReady, PID: os.Getpid(), T: Now()}); err != nil {
		return err
	}
	for {
		var o order
		if err := w.in.Decode(&o); err != nil {
			return err
		}
		answer := report{Saw: o.Do, T: Now(), PID: os.Getpid()}
		var err error
		switch o.Do {
		case doConnect:
			err = s.connectAll()
		case doStart:
			err = s.start()
			answer.T = s.started
		case doGrow:
			err = s.grow(o.More)
		case doFork:
			answer.PID, err = s.fork(o.Sender)
		case doInfo:
			answer.Conns, answer.CPU = s.infos(), ProcessCPU()
		case doStop:
			answer.Final, err = s.finish()
		default:
			err = fmt.Errorf("a sender does not know the order %q", o.Do)
		}
		if err != nil {
			return err
		}
		if err := w.write(answer); err != nil || o.Do == doStop {
			return err
		}
	}
}

func (s *sending) connectAll() error {
	if s.cfg.Mode == Short || len(s.fds) > 0 {
		return nil
	}
	for range s.cfg.Connections {
		fd, err := s.connect()
		if err != nil {
			return err
		}
		s.fds = append(s.fds, fd)
	}
	return nil
}

// connect opens a connection. The socket blocks, like that of an ordinary program.
func (s *sending) connect() (int, error) {
	domain := unix.AF_INET
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(s.to.Port()), Addr: to4(s.to.Addr())}
	if s.to.Addr().Is6() {
		domain = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(s.to.Port()), Addr: s.to.Addr().As16()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	if cc := s.cfg.Congestion; cc != "" {
		if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc); err != nil {
			return -1, errors.Join(fmt.Errorf("choose congestion control %s: %w", cc, err), unix.Close(fd))
		}
	}
	s.mu.Lock()
	s.open[fd] = struct{}{}
	s.mu.Unlock()
	err = unix.Connect(fd, sa)
	for err == unix.EINTR || err == unix.EALREADY { // a connect goes on after a signal
		err = unix.Connect(fd, sa)
	}
	if err != nil && err != unix.EISCONN {
		return -1, errors.Join(fmt.Errorf("connect to %s: %w", s.to, err), s.close(fd))
	}
	return fd, nil
}

func to4(a netip.Addr) [4]byte {
	if a.Is4() {
		return a.As4()
	}
	return [4]byte{}
}

func (s *sending) close(fd int) error {
	s.mu.Lock()
	delete(s.open, fd)
	s.mu.Unlock()
	return unix.Close(fd)
}

func (s *sending) start() error {
	if err := s.connectAll(); err != nil {
		return err
	}
	s.started, s.cpu = Now(), ProcessCPU()
	for i := range s.cfg.Connections {
		s.run(i)
	}
	go s.watch()
	if s.cfg.Bytes > 0 {
		go func() {
			s.work.Wait()
			_ = s.wire.write(report{Saw: sawDone, T: Now()}) // if it fails, no process reads it
		}()
	}
	return nil
}

// run runs the i-th connection in parallel with the others.
func (s *sending) run(i int) {
	s.work.Add(1)
	fd := -1 // for Short, which opens its own
	if s.cfg.Mode != Short {
		fd = s.fds[i]
	}
	go func() {
		defer s.work.Done()
		switch s.cfg.Mode {
		case Short:
			s.shortConnections()
		case Request:
			s.requests(fd)
		default:
			s.bulk(fd)
		}
	}()
}

// grow opens n further connections and starts them.
func (s *sending) grow(n int) error {
	if s.started == 0 || s.cfg.Bytes > 0 {
		return errors.New("only an endless sender that was started can grow")
	}
	for range n {
		if s.cfg.Mode != Short {
			fd, err := s.connect()
			if err != nil {
				return err
			}
			s.fds = append(s.fds, fd)
		}
		s.run(len(s.fds) - 1)
	}
	return nil
}

// watch reads the round trips of the connections every 10 ms. It reports them and the latencies every 100 ms, until
// the sender stops.
func (s *sending) watch() {
	tick := time.NewTicker(rttEvery)
	defer tick.Stop()
	var rtt []Point
	told := Now()
	for range tick.C {
		if s.stop.Load() {
			return
		}
		t := Now()
		s.mu.Lock()
		for fd := range s.open {
			ti, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil && ti.Rtt > 0 && s.cfg.Mode != Short {
				rtt = append(rtt, Point{t, time.Duration(ti.Rtt) * time.Microsecond})
			}
		}
		s.mu.Unlock()
		if t.Sub(told) < reportEvery {
			continue
		}
		told = t
		if s.tell(rtt) != nil {
			return // the starting process is gone
		}
		rtt = nil
	}
}

// tell reports round trips and the latencies since the last call.
func (s *sending) tell(rtt []Point) error {
	s.mu.Lock()
	latency := s.latency
	s.latency = nil
	s.mu.Unlock()
	if len(rtt)+len(latency) == 0 {
		return nil
	}
	return s.wire.write(report{Saw: sawPoints, T: Now(), RTT: rtt, Latency: latency})
}

// infos reads the state of the connections that are open now.
func (s *sending) infos() []ConnInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]ConnInfo(nil), s.ended...)
	for _, fd := range s.fds {
		if _, ok := s.open[fd]; !ok {
			continue
		}
		if c, err := readConnInfo(fd); err == nil {
			out = append(out, c)
		}
	}
	return out
}

// fork starts a child process that is a sender too, starts its traffic and returns its pid. The child dies with this
// process at the latest.
func (s *sending) fork(cfg *SenderConfig) (int, error) {
	if cfg == nil {
		return 0, errors.New("fork without a configuration")
	}
	child, err := startSender(nil, *cfg)
	if err != nil {
		return 0, fmt.Errorf("start child: %w", err)
	}
	s.mu.Lock()
	s.children = append(s.children, child)
	s.mu.Unlock()
	if _, err := child.Start(); err != nil {
		return 0, fmt.Errorf("start child's traffic: %w", err)
	}
	return child.PID(), nil
}

// finish stops everything: connections that still have data are reset, so that
// nothing drains afterwards.
func (s *sending) finish() (*SenderReport, error) {
	final := &SenderReport{PID: os.Getpid(), Started: s.started}
	var errs []error
	for _, child := range s.children {
		r, err := child.Stop()
		errs = append(errs, err)
		final.Children = append(final.Children, r)
	}
	final.Conns, final.Stopped = s.infos(), Now()
	s.stop.Store(true)
	s.abort()
	s.work.Wait()
	final.CPUSeconds = ProcessCPU() - s.cpu
	final.Written = s.written.Load()
	final.Completed, final.Failed = int(s.completed.Load()), int(s.failed.Load())
	errs = append(errs, s.tell(nil))
	return final, errors.Join(errs...)
}

// abort wakes every thread that waits in a socket and has the kernel discard the data in the sockets.
func (s *sending) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fd := range s.open {
		// Neither call can fail on the process's own socket, except on one that is not connected any more.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}
