package datagram

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// Sent holds the work of a sender since it started to send.
type Sent struct {
	At     testbed.Instant `json:"at"`
	Count  uint64          `json:"count"` // datagrams that the kernel took
	InCall time.Duration   `json:"in_call"`
	// Failed counts the calls that the kernel refused, by the error's name.
	Failed map[string]uint64 `json:"failed,omitempty"`
	CPU    float64           `json:"cpu_seconds"` // CPU time of the process
	// Late is the longest wait of the process for a CPU since the reading before: it shows how disturbed the machine
	// was.
	Late time.Duration `json:"late"`
}

// Failures returns the number of calls that failed.
func (s Sent) Failures() (n uint64) {
	for _, k := range s.Failed {
		n += k
	}
	return n
}

// Sub returns the work since an earlier reading.
func (s Sent) Sub(earlier Sent) Sent {
	d := Sent{At: s.At, Late: s.Late, Count: s.Count - earlier.Count, InCall: s.InCall - earlier.InCall, CPU: s.CPU - earlier.CPU, Failed: make(map[string]uint64)}
	for name, n := range s.Failed {
		if n > earlier.Failed[name] {
			d.Failed[name] = n - earlier.Failed[name]
		}
	}
	return d
}

// Sender is a process with one socket.
type Sender struct{ *process }

// SenderConfig configures a sender.
type SenderConfig struct {
	To           netip.AddrPort
	PayloadBytes int     // of a datagram, 8 at least
	Rate         float64 // payload bytes/s; 0 = as fast as it may
	// Remote keeps packets on the way from filling the socket's buffer, as with another machine at the other end.
	// Over a veth pair they fill it.
	Remote bool
	UID    uint32
}

// StartSender starts a sender in the namespace; it has its socket and sends
// nothing. Close ends it.
func StartSender(n *testbed.NetNS, c SenderConfig) (*Sender, error) {
	p, err := start(n, c.UID, config{To: c.To.String(), Bytes: c.PayloadBytes, Rate: c.Rate, Remote: c.Remote})
	return &Sender{p}, err
}

// Start has the process send.
func (s *Sender) Start() error {
	_, err := s.ask(order{Start: true})
	return err
}

// Sent returns the work of the process so far.
func (s *Sender) Sent() (Sent, error) {
	a, err := s.ask(order{})
	return a.Sent, err
}

// sender is the process.
type sender struct {
	fd   int
	conf config

	mu   sync.Mutex
	sent Sent
	// calling is the start of the call that has not returned, if there is one.
	calling time.Time
}

func runSender(c config, in *json.Decoder, out *json.Encoder) error {
	to, err := netip.ParseAddrPort(c.To)
	if err != nil {
		return err
	}
	if c.Bytes < sequenceBytes {
		return fmt.Errorf("a datagram needs %d bytes", sequenceBytes)
	}
	s := &sender{conf: c, sent: Sent{Failed: make(map[string]uint64)}}
	if s.fd, err = unix.Socket(family(to), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	if c.Remote {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 256<<20); err != nil {
			return fmt.Errorf("make the buffer larger: %w", err)
		}
	}
	if err := unix.Connect(s.fd, sockaddr(to)); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return err
		}
		if o.Start {
			go s.send()
			go s.watch()
		}
		if err := out.Encode(answer{Sent: s.now()}); err != nil {
			return err
		}
	}
}

// now returns the work so far; a waiting call counts until now.
func (s *sender) now() Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sent.Sub(Sent{})
	n.At, n.CPU = testbed.Now(), testbed.ProcessCPU()
	s.sent.Late = 0
	if !s.calling.IsZero() {
		n.InCall += time.Since(s.calling)
	}
	return n
}

// The first sequenceBytes of each datagram hold its number.
const sequenceBytes = 8

// send sends until the process ends. After each sleep it sends the amount that the rate allows at once.
func (s *sender) send() {
	runtime.LockOSThread()
	buf := make([]byte, s.conf.Bytes)
	begin := time.Now()
	for sequence := uint64(0); ; {
		if s.conf.Rate > 0 {
			ahead := float64(sequence)*float64(s.conf.Bytes)/s.conf.Rate - time.Since(begin).Seconds()
			if ahead > 200e-6 {
				time.Sleep(time.Duration(ahead * 1e9))
			}
		}
		binary.NativeEndian.PutUint64(buf, sequence)
		if s.call(buf) {
			sequence++
		}
	}
}

// watch records how late a short sleep ends.
func (s *sender) watch() {
	const nap = 2 * time.Millisecond
	for {
		before := time.Now()
		time.Sleep(nap)
		late := time.Since(before) - nap
		s.mu.Lock()
		s.sent.Late = max(s.sent.Late, late)
		s.mu.Unlock()
	}
}

// call sends one datagram; it says whether the kernel took it.
func (s *sender) call(buf []byte) bool {
	began := time.Now()
	s.mu.Lock()
	s.calling = began
	s.mu.Unlock()
	_, err := unix.Write(s.fd, buf)
	took := time.Since(began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling = time.Time{}
	s.sent.InCall += took
	var e unix.Errno
	switch {
	case err == nil:
		s.sent.Count++
	case errors.As(err, &e) && e == unix.EINTR:
	default:
		s.sent.Failed[unix.ErrnoName(e)]++
	}
	return err == nil
}

func family(a netip.AddrPort) int {
	if a.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
