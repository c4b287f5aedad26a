package bed

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
)

// sendRate is TCP_SNDRATE of include/netnice.h.
const sendRate = 7001

// Dial opens a TCP connection from inside the namespace. Its socket limits itself by netnice's socket option before
// it connects; 0 is no limit. The caller owns the descriptor, which blocks.
func Dial(n *testbed.NetNS, to netip.AddrPort, bytesPerSec uint64) (int, error) {
	fd := -1
	err := n.Do(func() error {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if bytesPerSec > 0 {
			err = unix.SetsockoptUint64(fd, unix.IPPROTO_TCP, sendRate, bytesPerSec)
			if err != nil {
				return fmt.Errorf("set TCP_SNDRATE: %w", err)
			}
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	})
	if err != nil {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

// Fill writes to the socket until it is shut down.
func Fill(fd int) {
	buf := make([]byte, 64<<10)
	for {
		_, err := unix.Write(fd, buf)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// FillByWindows writes a window of bytes, waits until the peer has acknowledged all of it, stands still for the pause, and
// begins again, until the socket is shut down. Senders with small buffers and coarse clocks did so.
func FillByWindows(fd, window int, pause time.Duration) {
	buf := make([]byte, window)
	for {
		for sent := 0; sent < window; {
			n, err := unix.Write(fd, buf[sent:])
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			sent += max(n, 0)
		}
		for {
			left, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
			if err != nil {
				return
			}
			if left == 0 {
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
		time.Sleep(pause)
	}
}

// Reset ends a connection at once, and discards the data in its buffer.
func Reset(fd int) error {
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Shutdown(fd, unix.SHUT_RDWR), unix.Close(fd))
}

// LocalPort returns a connection's own port.
func LocalPort(fd int) (uint16, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read own address: %w", err)
	}
	if v4, ok := sa.(*unix.SockaddrInet4); ok {
		return uint16(v4.Port), nil
	}
	return 0, fmt.Errorf("own address is no IPv4 address: %v", sa)
}

// RTT returns TCP's smoothed round trip.
func RTT(fd int) (time.Duration, error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("read TCP_INFO: %w", err)
	}
	return time.Duration(info.Rtt) * time.Microsecond, nil
}
