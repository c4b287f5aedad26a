// Package sockopts makes the calls of setsockopt and getsockopt that show whether other software spoils socket
// options: large ones, binary ones, those with pointers, and wrong ones. It returns the kernel's answers and judges
// nothing.
package sockopts

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Answer is the kernel's answer for one option: to the call that sets it, and to the call that reads it back.
type Answer struct {
	Name  string
	Bytes int    // size of the value
	Set   string // "ok" or the error
	Get   string // the same, with length and hash of the result
}

func (a Answer) String() string {
	return fmt.Sprintf("%s (%d bytes): set %s, get %s", a.Name, a.Bytes, a.Set, a.Get)
}

// option is an option that the package sets on a socket and reads back.
type option struct {
	name          string
	family, kind  int
	level, number int
	value         []byte
	read          int // option number for the read; 0: the same, -1: no read
	room          int // room for the result; 0 = as large as the value
	steady        int // number of bytes of the result that are the same each time; 0 = all
	prepare       func(fd int) error
	protocol      int
	pinned        any // keeps the target of the value's pointer
}

const (
	sources   = 1500
	pageBytes = 4096

	ipMsfilter    = 41 // IP_MSFILTER
	mcastMsfilter = 48
	soGetFilter   = 26
	tcpFastKey    = 33
	udpSegment    = 103
)

// Answers tries all options. It needs CAP_NET_ADMIN, and a network namespace in which net.ipv4.igmp_max_msf is 2000
// at least and lo is up.
func Answers() (list []Answer, err error) {
	for _, o := range table() {
		a, err := o.ask()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		list = append(list, a)
	}
	return list, nil
}

func table() []option {
	filter := make([]unix.SockFilter, 1000)
	for i := range filter {
		filter[i] = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}
	}
	long := make([]byte, 2*pageBytes)
	copy(long, "cubic")
	name := make([]byte, pageBytes+1)
	copy(name, "lo")
	md5 := make([]byte, 216) // struct tcp_md5sig
	binary.NativeEndian.PutUint16(md5, unix.AF_INET)
	copy(md5[4:], []byte{127, 0, 0, 9})
	binary.NativeEndian.PutUint16(md5[130:], 16)
	copy(md5[136:], "sixteen bytes of")
	hop := make([]byte, 2040) // IPV6_HOPOPTS: all of it padding
	hop[1] = byte(len(hop)/8 - 1)
	for at := 2; at < len(hop); {
		n := min(255, len(hop)-at-2)
		hop[at], hop[at+1] = 1, byte(n)
		at += 2 + n
	}
	stream, dgram, six := unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.AF_INET6
	return []option{
		{name: "IP_MSFILTER", kind: dgram, level: unix.IPPROTO_IP, number: ipMsfilter, value: msfilter(), prepare: join},
		{name: "IP_MSFILTER, too many", kind: dgram, level: unix.IPPROTO_IP, number: ipMsfilter, value: append(msfilter(), make([]byte, 4*2000)...), prepare: join},
		{name: "MCAST_MSFILTER", kind: dgram, level: unix.IPPROTO_IP, number: mcastMsfilter, value: groupFilter(), prepare: join},
		{name: "MCAST_JOIN_GROUP", kind: dgram, level: unix.IPPROTO_IP, number: unix.MCAST_JOIN_GROUP, value: groupReq(), read: -1},
		{name: "SO_ATTACH_FILTER", kind: dgram, level: unix.SOL_SOCKET, number: unix.SO_ATTACH_FILTER, value: program(filter), pinned: filter, read: soGetFilter, room: 1000},
		{name: "SO_ATTACH_FILTER, none", kind: dgram, level: unix.SOL_SOCKET, number: unix.SO_ATTACH_FILTER, value: program(nil), read: -1},
		{name: "PACKET_FANOUT_DATA", family: unix.AF_PACKET, kind: dgram, level: unix.SOL_PACKET, number: unix.PACKET_FANOUT_DATA, value: program(filter[:10]), pinned: filter, read: -1, prepare: fanout},
		{name: "PACKET_RX_RING", family: unix.AF_PACKET, kind: dgram, level: unix.SOL_PACKET, number: unix.PACKET_RX_RING, value: words(pageBytes, 4, 2048, 8), read: -1},
		{name: "TCP_MD5SIG", kind: stream, level: unix.IPPROTO_TCP, number: unix.TCP_MD5SIG, value: md5, read: -1},
		{name: "TCP_ULP", kind: stream, level: unix.IPPROTO_TCP, number: unix.TCP_ULP, value: []byte("none")},
		{name: "TCP_CONGESTION", kind: stream, level: unix.IPPROTO_TCP, number: unix.TCP_CONGESTION, value: []byte("reno"), room: 16},
		{name: "TCP_CONGESTION, two pages", kind: stream, level: unix.IPPROTO_TCP, number: unix.TCP_CONGESTION, value: long},
		{name: "TCP_FASTOPEN_KEY", kind: stream, level: unix.IPPROTO_TCP, number: tcpFastKey, value: []byte("sixteen bytes ofsixteen bytes of")},
		{name: "TCP_INFO, two pages of room", kind: stream, level: unix.IPPROTO_TCP, number: unix.TCP_INFO, value: words(1), room: 2 * pageBytes, steady: 8},
		{name: "SO_BINDTODEVICE, more than a page", kind: stream, level: unix.SOL_SOCKET, number: unix.SO_BINDTODEVICE, value: name},
		{name: "SO_LINGER", kind: stream, level: unix.SOL_SOCKET, number: unix.SO_LINGER, value: words(1, 7)},
		{name: "SO_LINGER, two pages", kind: stream, level: unix.SOL_SOCKET, number: unix.SO_LINGER, value: append(words(1, 9), make([]byte, 2*pageBytes)...)},
		{name: "SO_RCVBUF", kind: dgram, level: unix.SOL_SOCKET, number: unix.SO_RCVBUF, value: words(100000)},
		{name: "SO_RCVBUF, too short", kind: dgram, level: unix.SOL_SOCKET, number: unix.SO_RCVBUF, value: []byte{1}},
		{name: "SO_MAX_PACING_RATE", kind: stream, level: unix.SOL_SOCKET, number: unix.SO_MAX_PACING_RATE, value: words(123456)},
		{name: "IP_OPTIONS", kind: stream, level: unix.IPPROTO_IP, number: unix.IP_OPTIONS, value: append(make([]byte, 0, 40), 7, 39, 4)[:40]},
		{name: "IPV6_HOPOPTS", family: six, kind: dgram, level: unix.IPPROTO_IPV6, number: unix.IPV6_HOPOPTS, value: hop},
		{name: "IPV6_HOPOPTS, more than a page", family: six, kind: dgram, level: unix.IPPROTO_IPV6, number: unix.IPV6_HOPOPTS, value: make([]byte, pageBytes+8)},
		{name: "UDP_SEGMENT", kind: dgram, level: unix.IPPROTO_UDP, number: udpSegment, value: words(1400)},
		{name: "NETLINK_ADD_MEMBERSHIP", family: unix.AF_NETLINK, kind: unix.SOCK_RAW, level: unix.SOL_NETLINK, number: unix.NETLINK_ADD_MEMBERSHIP, value: words(1), read: -1},
		{name: "SO_PASSCRED", family: unix.AF_UNIX, kind: stream, level: unix.SOL_SOCKET, number: unix.SO_PASSCRED, value: words(1)},
		{name: "none of that number", kind: stream, level: unix.IPPROTO_TCP, number: 9999, value: words(1)},
		{name: "none of that number, two pages", kind: dgram, level: unix.IPPROTO_UDP, number: 9999, value: make([]byte, 2*pageBytes)},
		{name: "none of that level", kind: stream, level: 4711, number: 1, value: words(1)},
	}
}

func (o option) ask() (Answer, error) {
	family := o.family
	if family == 0 {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, o.kind|unix.SOCK_CLOEXEC, o.protocol)
	if err != nil {
		return Answer{}, err
	}
	defer unix.Close(fd)
	if o.prepare != nil {
		if err := o.prepare(fd); err != nil {
			return Answer{}, fmt.Errorf("prepare: %w", err)
		}
	}
	a := Answer{Name: o.name, Bytes: len(o.value), Set: "ok", Get: "not"}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(o.level), uintptr(o.number), uintptr(unsafe.Pointer(&o.value[0])), uintptr(len(o.value)), 0)
	if errno != 0 {
		a.Set = unix.ErrnoName(errno)
	}
	if o.read < 0 {
		return a, nil
	}
	number, room := o.read, o.room
	if number == 0 {
		number = o.number
	}
	if room == 0 {
		room = len(o.value)
	}
	a.Get = o.get(fd, number, room)
	return a, nil
}

// get returns the answer of getsockopt. For IP_MSFILTER and similar options the first bytes of the buffer select the
// entry.
func (o option) get(fd, number, room int) string {
	out := make([]byte, max(room, 8)*8) // SO_GET_FILTER counts by 8 bytes
	if o.level == unix.IPPROTO_IP {
		copy(out, o.value)
	}
	length := uint32(room)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(o.level), uintptr(number), uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return unix.ErrnoName(errno)
	}
	if int(length) > len(out) {
		return fmt.Sprint("a length of ", length)
	}
	same := out[:length]
	if o.steady > 0 {
		same = out[:o.steady]
	}
	sum := sha256.Sum256(same)
	return fmt.Sprintf("ok, %d bytes, %x", length, sum[:8])
}

func words(list ...uint32) (out []byte) {
	for _, w := range list {
		out = binary.NativeEndian.AppendUint32(out, w)
	}
	return out
}

var group = [4]byte{239, 1, 2, 3}

const loopback = 0x0100007f // 127.0.0.1 in memory on little-endian machines

func join(fd int) error {
	return unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: group, Interface: [4]byte{127, 0, 0, 1}})
}

// fanout needs a socket on a device.
func fanout(fd int) error {
	const cbpf = 6 // PACKET_FANOUT_CBPF
	err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: 1})
	return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, cbpf<<16|4711))
}

// msfilter is struct ip_msfilter.
func msfilter() []byte {
	out := append(append([]byte{}, group[:]...), words(loopback, unix.MCAST_INCLUDE, sources)...)
	for i := range sources {
		out = append(out, 10, 1, byte(i>>8), byte(i))
	}
	return out
}

// address is a struct sockaddr_storage.
func address(ip [4]byte) []byte {
	out := make([]byte, 128)
	binary.NativeEndian.PutUint16(out, unix.AF_INET)
	copy(out[4:], ip[:])
	return out
}

// groupReq is struct group_req.
func groupReq() []byte { return append(append(words(1), 0, 0, 0, 0), address(group)...) }

// groupFilter is struct group_filter.
func groupFilter() []byte {
	const n = 200
	out := append(groupReq(), words(unix.MCAST_INCLUDE, n)...)
	for i := range n {
		out = append(out, address([4]byte{10, 2, 0, byte(i)})...)
	}
	return out
}

// program is struct sock_fprog.
func program(list []unix.SockFilter) []byte {
	out := make([]byte, 16)
	binary.NativeEndian.PutUint16(out, uint16(len(list)))
	if len(list) > 0 {
		binary.NativeEndian.PutUint64(out[8:], uint64(uintptr(unsafe.Pointer(&list[0]))))
	}
	return out
}
