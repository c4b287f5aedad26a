package datagram

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// Receiver is a process with one socket. The kernel records the arrival time of a datagram, so a wait of the process
// for a CPU does not affect the figures.
type Receiver struct{ *process }

// StartReceiver starts a receiver in the namespace; it listens when this
// returns. Close ends it.
func StartReceiver(n *testbed.NetNS, at netip.AddrPort) (*Receiver, error) {
	p, err := start(n, 0, config{Listen: at.String()})
	return &Receiver{p}, err
}

// Arrived returns the figures of the datagrams between two instants. Gaps are between every group-th datagram.
func (r *Receiver) Arrived(from, to testbed.Instant, group int) (Arrivals, error) {
	a, err := r.ask(order{From: from, To: to, Group: group})
	return a.Arrived, err
}

// receiver is the process.
type receiver struct {
	fd int

	mu   sync.Mutex
	came []arrival
	err  error
}

const (
	batch       = 64
	headBytes   = 16
	controlSize = 64
)

// mmsghdr is the kernel's struct.
type mmsghdr struct {
	hdr    unix.Msghdr
	length uint32
	_      [4]byte
}

func runReceiver(c config, in *json.Decoder, out *json.Encoder) error {
	at, err := netip.ParseAddrPort(c.Listen)
	if err != nil {
		return err
	}
	r := new(receiver)
	if r.fd, err = unix.Socket(family(at), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	// The buffer has 32 MB, so the receiver does not drop datagrams.
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20); err != nil {
		return fmt.Errorf("make the buffer larger: %w", err)
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("switch time stamps on: %w", err)
	}
	if err := unix.Bind(r.fd, sockaddr(at)); err != nil {
		return fmt.Errorf("bind to %s: %w", at, err)
	}
	go r.receive()
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return err
		}
		a, err := r.report(o)
		if err != nil {
			return err
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func (r *receiver) report(o order) (answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return answer{}, r.err
	}
	a := answer{Arrived: count(r.came, o.From, o.To, o.Group)}
	a.Arrived.CPU = testbed.ProcessCPU()
	var info [9]uint32 // SK_MEMINFO_VARS; the last is drops
	size := uint32(len(info) * 4)
	const soMeminfo, drops = 55, 8
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(r.fd), unix.SOL_SOCKET, soMeminfo,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return a, fmt.Errorf("ask for the socket's drops: %w", errno)
	}
	a.Arrived.Refused = info[drops]
	return a, nil
}

// receive records arriving datagrams until the process ends.
func (r *receiver) receive() {
	var (
		heads    [batch][headBytes]byte
		controls [batch][controlSize]byte
		vectors  [batch]unix.Iovec
		messages [batch]mmsghdr
	)
	for i := range messages {
		vectors[i].Base = &heads[i][0]
		vectors[i].SetLen(headBytes)
		messages[i].hdr.Iov, messages[i].hdr.Iovlen = &vectors[i], 1
	}
	offset := clockOffset()
	for {
		for i := range messages {
			messages[i].hdr.Control = &controls[i][0]
			messages[i].hdr.SetControllen(controlSize)
		}
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&messages[0])), batch,
			unix.MSG_WAITFORONE|unix.MSG_TRUNC, 0, 0)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		default:
			r.mu.Lock()
			r.err = fmt.Errorf("receive: %w", errno)
			r.mu.Unlock()
			return
		}
		r.mu.Lock()
		for i := range int(n) {
			stamp := (*unix.Timespec)(unsafe.Pointer(&controls[i][unix.CmsgLen(0)]))
			r.came = append(r.came, arrival{
				at:       testbed.Instant(stamp.Nano() + offset),
				sequence: binary.NativeEndian.Uint64(heads[i][:]),
			})
		}
		r.mu.Unlock()
	}
}

// clockOffset returns the offset from the kernel's time stamps to instants.
func clockOffset() int64 {
	best, offset := time.Hour.Nanoseconds(), int64(0)
	for range 20 {
		before, wall, after := testbed.Now(), time.Now().UnixNano(), testbed.Now()
		if took := int64(after - before); took < best {
			best, offset = took, int64(before)+took/2-wall
		}
	}
	return offset
}
