package e2e

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	turnBurst = 200    // datagrams between two readings of the clock
	turnAmong = 100000 // addresses, from the first one on
	turnStep  = 61803  // distance of one address to the next, so that they spread over these
)

// sendInTurn is a sender that does nothing but send. For each line "N SECONDS" it sends by one socket to N addresses
// in turn. Burst by burst it alternates with another socket, connected to the first of them. It prints the processor
// time of a datagram of each socket, in ns. The machine's present speed affects both.
func sendInTurn(first, port string) error {
	from, err := netip.ParseAddr(first)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	address := func(i int) (to unix.RawSockaddrInet4) {
		to.Family = unix.AF_INET
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&to.Port))[:], uint16(number))
		base := from.As4()
		binary.BigEndian.PutUint32(to.Addr[:], binary.BigEndian.Uint32(base[:])+uint32(i*turnStep%turnAmong))
		return to
	}
	var fds [3]int
	for i := range fds {
		if fds[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
	}
	fd, connected, sink := fds[0], fds[1], fds[2]
	// The datagrams arrive, and find a full buffer.
	if err := unix.SetsockoptInt(sink, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		return err
	}
	if err := unix.Bind(sink, &unix.SockaddrInet4{Port: int(number)}); err != nil {
		return err
	}
	if err := unix.Connect(connected, &unix.SockaddrInet4{Port: int(number), Addr: address(0).Addr}); err != nil {
		return err
	}
	runtime.LockOSThread() // the thread whose processor time counts
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var n int
		var seconds float64
		if _, err := fmt.Sscan(in.Text(), &n, &seconds); err != nil {
			return err
		}
		to := make([]unix.RawSockaddrInet4, n)
		for i := range to {
			to[i] = address(i)
		}
		inTurn, asBefore, err := burstsInTurn(fd, connected, to, time.Duration(seconds*1e9))
		if err != nil {
			return err
		}
		fmt.Println("took", inTurn.Nanoseconds(), asBefore.Nanoseconds())
	}
	return nil
}

// burstsInTurn returns the processor time that a datagram takes of this thread. The results are medians of bursts,
// to the addresses in turn and by the connected socket.
func burstsInTurn(fd, connected int, to []unix.RawSockaddrInet4, whole time.Duration) (inTurn, asBefore time.Duration, err error) {
	var payload [1]byte
	now := func() time.Duration {
		var t unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // this clock always exists
		return time.Duration(t.Nano())
	}
	at := 0
	burst := func(turn bool) (time.Duration, error) {
		begin := now()
		for range turnBurst {
			var errno unix.Errno
			if turn {
				_, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&payload)), 1, 0,
					uintptr(unsafe.Pointer(&to[at])), unix.SizeofSockaddrInet4)
				at = (at + 1) % len(to)
			} else {
				_, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(connected), uintptr(unsafe.Pointer(&payload)), 1, 0, 0, 0)
			}
			if errno != 0 {
				return 0, fmt.Errorf("send: %w", errno)
			}
		}
		return now() - begin, nil
	}
	for range len(to)/turnBurst + 1 { // one round, so that every address is known before
		if _, err := burst(true); err != nil {
			return 0, 0, err
		}
	}
	var took [2][]time.Duration
	for begin := now(); now()-begin < whole; {
		for i, turn := range []bool{true, false} {
			t, err := burst(turn)
			if err != nil {
				return 0, 0, err
			}
			took[i] = append(took[i], t)
		}
	}
	for _, list := range took {
		slices.Sort(list)
	}
	return took[0][len(took[0])/2] / turnBurst, took[1][len(took[1])/2] / turnBurst, nil
}
