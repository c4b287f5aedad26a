package netnamespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// InetSocket is a socket as sock_diag(7) shows it.
type InetSocket struct {
	Cookie        uint64
	Inode         uint64 // 0 = no process has it open
	Family        uint8  // AF_INET or AF_INET6
	Protocol      uint16
	Local, Remote netip.AddrPort
}

// InetSockets calls f for each TCP, UDP, UDP-Lite and raw socket of a network namespace, and then for each MPTCP socket.
// An MPTCP socket has the inode and the addresses of a TCP socket. process is the path of a process's folder in /proc.
// Protocols of which this kernel lists no sockets are left out.
func InetSockets(process string, f func(InetSocket)) error {
	list := func() error {
		for _, protocol := range []uint16{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_RAW, unix.IPPROTO_MPTCP} {
			for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
				err := inetSockets(family, protocol, f)
				if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
					return fmt.Errorf("list sockets of protocol %d: %w", protocol, err)
				}
			}
		}
		return nil
	}
	path := process + "/ns/net"
	var its, own unix.Stat_t
	if unix.Stat(path, &its) == nil && unix.Stat("/proc/self/ns/net", &own) == nil && its.Ino == own.Ino {
		return list() // needs no right to enter a namespace
	}
	return Within(path, list)
}

// The layout of struct inet_diag_req_v2 and of struct inet_diag_msg, which begins with a family and a state. Both have a
// struct inet_diag_sockid.
const (
	diagRequestSize = 56
	diagStatesAt    = 4 // __u32, a bit for each state
	diagProtocol    = 3 // attribute with the protocol: INET_DIAG_REQ_PROTOCOL
	diagAnswerSize  = 72
	diagPortsAt     = 4 // two __be16
	diagLocalAt     = 8
	diagRemoteAt    = 24
	diagCookieAt    = 44
	diagInodeAt     = 68 // __u32
)

// diagStates are the states of sockets that a program may have: not TIME_WAIT, SYN_RECV and NEW_SYN_RECV.
const diagStates = ^uint32(1<<6 | 1<<3 | 1<<12)

// diagRequest implements nl.NetlinkRequestData.
type diagRequest []byte

func (r diagRequest) Len() int          { return len(r) }
func (r diagRequest) Serialize() []byte { return r }

func inetSockets(family uint8, protocol uint16, f func(InetSocket)) error {
	ask := make(diagRequest, diagRequestSize)
	ask[0], ask[1] = family, uint8(protocol)
	binary.NativeEndian.PutUint32(ask[diagStatesAt:], diagStates)
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddData(ask)
	if protocol > math.MaxUint8 {
		request.AddData(nl.NewRtAttr(diagProtocol, nl.Uint32Attr(uint32(protocol))))
	}
	answers, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // then sockets came or went meanwhile
		return fmt.Errorf("ask sock_diag: %w", err)
	}
	for _, m := range answers {
		if len(m) >= diagAnswerSize {
			f(inetSocket(m, protocol))
		}
	}
	return nil
}

// inetSocket reads a struct inet_diag_msg.
func inetSocket(m []byte, protocol uint16) InetSocket {
	address := func(at, port int) netip.AddrPort {
		ip := netip.AddrFrom16([16]byte(m[at : at+16]))
		if m[0] == unix.AF_INET {
			ip = netip.AddrFrom4([4]byte(m[at : at+4]))
		}
		return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(m[port:]))
	}
	low, high := binary.NativeEndian.Uint32(m[diagCookieAt:]), binary.NativeEndian.Uint32(m[diagCookieAt+4:])
	return InetSocket{
		Cookie: uint64(high)<<32 | uint64(low), Inode: uint64(binary.NativeEndian.Uint32(m[diagInodeAt:])),
		Family: m[0], Protocol: protocol, Local: address(diagLocalAt, diagPortsAt), Remote: address(diagRemoteAt, diagPortsAt+2),
	}
}
