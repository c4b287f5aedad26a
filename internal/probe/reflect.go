package probe

import (
	"context"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultPort of a reflector, UDP.
const DefaultPort = 7077

// Reflector answers probe packets with their time of arrival. It answers no other
// packets. Its answers have 40 bytes, and no request has fewer. It answers no probe before the sender has shown
// that it receives at its address.
type Reflector struct {
	file   *os.File
	fd     int
	local  netip.AddrPort
	secret [32]byte
	limits sources
}

// Listen opens the reflector's socket; Serve answers, Close ends it.
func Listen(at netip.AddrPort) (*Reflector, error) {
	domain := unix.AF_INET
	if at.Addr().Is6() {
		domain = unix.AF_INET6 // the unspecified address receives IPv4, too
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket: %w", err)
	}
	r := &Reflector{fd: fd, limits: newSources()}
	if err := r.bind(at); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", at, err), unix.Close(fd))
	}
	_, _ = cryptorand.Read(r.secret[:]) // never fails
	r.file = os.NewFile(uintptr(fd), "reflector")
	return r, nil
}

func (r *Reflector) bind(at netip.AddrPort) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("ask for the kernel's time stamps: %w", err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if at.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if err := unix.SetsockoptInt(r.fd, level, option, 1); err != nil {
		return fmt.Errorf("ask for the address that is asked: %w", err)
	}
	const buffer = 8 << 20
	if unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		_ = unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) // less will do
	}
	address, err := sockaddr(at)
	if err != nil {
		return err
	}
	if err := unix.Bind(r.fd, address); err != nil {
		return err
	}
	r.local, err = localAddress(r.fd)
	return err
}

// Addr returns the address at which the reflector listens.
func (r *Reflector) Addr() netip.AddrPort { return r.local }

// Close ends Serve.
func (r *Reflector) Close() error { return r.file.Close() }

// Serve answers until the context ends or the reflector is closed.
func (r *Reflector) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(time.Now()) })
	defer stop()
	conn, err := r.file.SyscallConn()
	if err != nil {
		return err
	}
	buf, control := make([]byte, MaxSize), make([]byte, 256)
	out := make([]byte, reflectLength)
	for {
		var n, controlLength int
		var from unix.Sockaddr
		var result error
		err := conn.Read(func(fd uintptr) bool {
			n, controlLength, _, from, result = unix.Recvmsg(int(fd), buf, control, unix.MSG_DONTWAIT)
			return !errors.Is(result, unix.EAGAIN)
		})
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive probe packets: %w", err)
		}
		source, ok := source(from)
		if result != nil || !ok {
			continue // an ICMP error about an answer
		}
		if r.answer(buf[:n], source, stampOf(control[:controlLength]), time.Now(), out) {
			// An answer that cannot be sent counts as lost.
			_ = unix.Sendmsg(r.fd, out, askedAt(control[:controlLength]), from, unix.MSG_DONTWAIT)
		}
	}
}

// askedAt returns the control message that sends an answer from the destination address of the request. A host may
// have several addresses, and the prober waits for an answer from that one. It is nil where the address is not known.
func askedAt(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}

func source(from unix.Sockaddr) (netip.AddrPort, bool) {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}

// answer puts the answer to a packet into out, which is 40 bytes, and reports whether there is one.
func (r *Reflector) answer(packet []byte, from netip.AddrPort, receivedNS int64, now time.Time, out []byte) bool {
	p, err := parseReflect(packet)
	if err != nil {
		return false
	}
	switch p.message {
	case helloMessage:
		if !r.limits.hello(from.Addr(), now) {
			return false
		}
		reflectPacket{message: challengeMessage, nonce: p.nonce, cookie: r.cookie(from, now)}.put(out)
		return true
	case probeMessage:
		if p.cookie != r.cookie(from, now) && p.cookie != r.cookie(from, now.Add(-cookieLife)) {
			return false
		}
		if !r.limits.probe(from.Addr(), now) {
			return false
		}
		reflectPacket{message: replyMessage, nonce: p.nonce, seq: p.seq, receivedNS: receivedNS}.put(out)
		return true
	default:
		return false
	}
}

// cookieLife is the least life of a cookie; the longest is twice that.
const cookieLife = 2 * time.Minute

// cookie returns the cookie of an address at a time. The reflector keeps no state of its senders.
func (r *Reflector) cookie(from netip.AddrPort, now time.Time) uint64 {
	mac := hmac.New(sha256.New, r.secret[:])
	address := from.Addr().As16()
	mac.Write(address[:])
	var rest [10]byte
	binary.BigEndian.PutUint16(rest[:], from.Port())
	binary.BigEndian.PutUint64(rest[2:], uint64(now.UnixNano()/int64(cookieLife)))
	mac.Write(rest[:])
	return binary.BigEndian.Uint64(mac.Sum(nil))
}
