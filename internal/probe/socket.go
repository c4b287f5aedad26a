package probe

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/netnamespace"
)

// ErrDenied says that the kernel refused a socket for probe packets.
var ErrDenied = errors.New("not permitted")

// deniedError is the kernel's refusal with its remedy.
type deniedError struct{ cause error }

func (e *deniedError) Error() string {
	return "the kernel lets this user send no ICMP packets"
}
func (e *deniedError) Unwrap() []error { return []error{ErrDenied, e.cause} }
func (e *deniedError) Hint() string {
	return "run it as root (CAP_NET_RAW), or allow ping sockets: sysctl -w net.ipv4.ping_group_range='0 2147483647'"
}

// socket is a socket that is connected to the host. It stays in its network namespace for good.
type socket struct {
	file  *os.File // registered with the runtime's poller
	fd    int
	raw   bool // a raw socket: it delivers IPv4 headers, and lets us choose the id
	local netip.AddrPort
}

// openSocket opens a socket in the network namespace from which probes are sent.
func openSocket(cfg Config) (*socket, error) {
	s := &socket{fd: -1}
	open := func() error { return s.open(cfg) }
	namespace := cfg.Namespace
	var err error
	if namespace == "" {
		err = open()
	} else {
		err = netnamespace.Within(namespace, open)
		if err == nil && s.file == nil {
			err = fmt.Errorf("enter network namespace %s: %w", namespace, os.ErrNotExist)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *socket) open(cfg Config) (err error) {
	to := netip.AddrPortFrom(cfg.To, cfg.Port)
	v6 := to.Addr().Is6()
	if s.fd, s.raw, err = newSocket(cfg.Kind, v6); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(s.fd)
		}
	}()
	if err := s.settings(cfg.Kind, v6); err != nil {
		return err
	}
	if cfg.Prepare != nil {
		if err := cfg.Prepare(s.fd); err != nil {
			return err
		}
	}
	address, err := sockaddr(to)
	if err != nil {
		return err
	}
	if err := unix.Connect(s.fd, address); err != nil {
		return fmt.Errorf("find a route to %s: %w", to.Addr(), err)
	}
	if s.local, err = localAddress(s.fd); err != nil {
		return err
	}
	s.file = os.NewFile(uintptr(s.fd), "probe")
	return nil
}

// newSocket opens a raw socket, or, without permission for that, a ping socket for echo.
func newSocket(kind Kind, v6 bool) (fd int, raw bool, err error) {
	domain, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if v6 {
		domain, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	if kind == UDP {
		fd, err = unix.Socket(domain, unix.SOCK_DGRAM|flags, 0)
		if err != nil {
			return -1, false, fmt.Errorf("open a UDP socket: %w", err)
		}
		return fd, false, nil
	}
	fd, err = unix.Socket(domain, unix.SOCK_RAW|flags, protocol)
	if err == nil {
		return fd, true, nil
	}
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
	if denied && kind == Echo {
		fd, err = unix.Socket(domain, unix.SOCK_DGRAM|flags, protocol)
		if err == nil {
			return fd, false, nil
		}
	}
	if denied {
		return -1, false, &deniedError{err}
	}
	return -1, false, fmt.Errorf("open an ICMP socket: %w", err)
}

func (s *socket) settings(kind Kind, v6 bool) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for the kernel's time stamps: %w", err)
	}
	const buffer = 4 << 20
	for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o[0], buffer) != nil {
			_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o[1], buffer) // less will do
		}
	}
	// A packet in fragments would be two at the bottleneck.
	if err := s.discoverMTU(v6, true); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	if !s.raw {
		return nil
	}
	if v6 {
		var filter unix.ICMPv6Filter
		for i := range filter.Data {
			filter.Data[i] = math.MaxUint32
		}
		filter.Data[129/32] &^= 1 << (129 % 32) // echo reply
		if err := unix.SetsockoptICMPv6Filter(s.fd, unix.IPPROTO_ICMPV6, 1, &filter); err != nil {
			return fmt.Errorf("filter ICMPv6: %w", err)
		}
		return nil
	}
	wanted := uint32(1) // echo reply
	if kind == Timestamp {
		wanted = 1 << 14
	}
	const icmpFilter = 1
	if err := unix.SetsockoptInt(s.fd, unix.SOL_RAW, icmpFilter, int(^wanted)); err != nil {
		return fmt.Errorf("filter ICMP: %w", err)
	}
	return nil
}

func (s *socket) discoverMTU(v6, on bool) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT
	if on {
		value = unix.IP_PMTUDISC_DO
	}
	if v6 { // the values are the same
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	return unix.SetsockoptInt(s.fd, level, option, value)
}

// allowFragments makes the kernel fragment packets that are larger than the MTU.
func (s *socket) allowFragments(v6 bool) error {
	if err := s.discoverMTU(v6, false); err != nil {
		return fmt.Errorf("allow fragments: %w", err)
	}
	return nil
}

func sockaddr(to netip.AddrPort) (unix.Sockaddr, error) {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}, nil
	}
	a := &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	zone := to.Addr().Zone()
	if zone == "" {
		return a, nil
	}
	index, err := strconv.ParseUint(zone, 10, 32)
	if err != nil {
		path := "/sys/class/net/" + zone + "/ifindex"
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("find device %s: %w", zone, err)
		}
		if index, err = strconv.ParseUint(string(text[:max(len(text)-1, 0)]), 10, 32); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	a.ZoneId = uint32(index)
	return a, nil
}

func localAddress(fd int) (netip.AddrPort, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the socket's address: %w", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("read the socket's address: %w", unix.EAFNOSUPPORT)
}

// mtu returns the MTU of the route in IP bytes.
func (s *socket) mtu(v6 bool) (int, error) {
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	n, err := unix.GetsockoptInt(s.fd, level, option)
	if err != nil {
		return 0, fmt.Errorf("read the route's MTU: %w", err)
	}
	return n, nil
}

// send sends one packet. If the socket's buffer is full, it waits, at most for the time most.
func (s *socket) send(b []byte, most time.Duration) error {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	once := func(fd uintptr) bool {
		result = ignoringPending(func() error { return unix.Send(int(fd), b, unix.MSG_DONTWAIT) })
		return true
	}
	if err := conn.Write(once); err != nil {
		return err
	}
	if !errors.Is(result, unix.EAGAIN) {
		return result
	}
	if err := s.file.SetWriteDeadline(time.Now().Add(most)); err != nil {
		return err
	}
	err = conn.Write(func(fd uintptr) bool {
		once(fd)
		return !errors.Is(result, unix.EAGAIN)
	})
	return errors.Join(err, result, s.file.SetWriteDeadline(time.Time{}))
}

// ignoringPending calls f again where it reports the pending ICMP error of an earlier packet.
func ignoringPending(f func() error) error {
	err := f()
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) {
		return f()
	}
	return err
}

// receive waits for one packet, and returns it with the kernel's time stamp.
func (s *socket) receive(buf, control []byte) (n int, at int64, err error) {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var result error
	var controlLength int
	err = conn.Read(func(fd uintptr) bool {
		n, controlLength, _, _, result = unix.Recvmsg(int(fd), buf, control, unix.MSG_DONTWAIT)
		return !errors.Is(result, unix.EAGAIN)
	})
	if err != nil || result != nil {
		return 0, 0, errors.Join(err, result)
	}
	return n, stampOf(control[:controlLength]), nil
}

// stampOf returns the time in SO_TIMESTAMPNS's message, or the present time without one.
func stampOf(control []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= sizeofTimespec {
				return timespecNS(m.Data)
			}
		}
	}
	return nowNS()
}

func nowNS() int64 { return time.Now().UnixNano() }
