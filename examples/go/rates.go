// SPDX-License-Identifier: Apache-2.0

// Rates sets the rates of sockets, of this process and of this user, and reads them back.
//
//	go run ./examples/go tcp4:send:8:1000000 accepted6:receive:8:500000 process:total:8:2000000
//
// A socket, what it is to do, the size of the value in bytes, and the value. See
// ../README.md.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Of include/netnice.h.
const (
	tcpSendRate    = 7001
	tcpReceiveRate = 7002
	limitOption    = 7005
	prioNet        = 3
	prioNetUser    = 4
	askOnly        = ^uint64(0)
)

type limit struct {
	which, who, direction, failed uint32
	bytesPerSec                   uint64
}

func setsockopt(fd uintptr, level, option int, value []byte) error {
	return syscall.SetsockoptString(int(fd), level, option, string(value))
}

func getsockopt(fd uintptr, level, option int, into unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, uintptr(level), uintptr(option),
		uintptr(into), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// within calls f with the descriptor of a connection, a listener or a packet socket.
func within(c any, f func(fd uintptr) error) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(fd) }); err != nil {
		return err
	}
	return inner
}

func rateOfSocket(kind string, option int, value []byte) (got uint64, err error) {
	family, level := kind[len(kind)-1:], syscall.IPPROTO_TCP
	loopback := map[string]string{"4": "127.0.0.1:0", "6": "[::1]:0"}[family]
	set := func(fd uintptr) error { return setsockopt(fd, level, option, value) }
	read := func(fd uintptr) error {
		return getsockopt(fd, level, option, unsafe.Pointer(&got), unsafe.Sizeof(got))
	}
	both := func(c any) error { return errors.Join(within(c, set), within(c, read)) }
	var listener net.Listener
	switch {
	case strings.HasPrefix(kind, "udp"):
		level = syscall.IPPROTO_UDP
		c, err := net.ListenPacket(kind, loopback)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return got, both(c)
	case kind == "unix":
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@", Net: "unixgram"})
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return got, both(c)
	}
	// A listener of Go's is one of MPTCP: it has its option before it listens, as
	// what it accepts may be the sockets below.
	control := func(_, _ string, c syscall.RawConn) error {
		var inner error
		err := c.Control(func(fd uintptr) { inner = set(fd) })
		return errors.Join(err, inner)
	}
	var config net.ListenConfig
	if strings.HasPrefix(kind, "accepted") {
		config.Control = control
	}
	if listener, err = config.Listen(context.Background(), "tcp"+family, loopback); err != nil {
		return 0, err
	}
	defer listener.Close()
	// Before it connects, if that is asked for.
	var d net.Dialer
	if strings.HasPrefix(kind, "tcp") {
		d.Control = control
	}
	c, err := d.Dial("tcp"+family, listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	switch {
	case strings.HasPrefix(kind, "open"):
		return got, both(c)
	case strings.HasPrefix(kind, "accepted"):
		accepted, err := listener.Accept()
		if err != nil {
			return 0, err
		}
		defer accepted.Close()
		return got, within(accepted, read)
	}
	return got, within(c, read)
}

// ask sets a limit of a process or a user, or asks for it, and returns what holds.
func ask(which, who, direction uint32, value uint64) (uint64, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	l := limit{which: which, who: who, direction: direction, bytesPerSec: value}
	if err := setsockopt(uintptr(fd), syscall.IPPROTO_TCP, limitOption, unsafe.Slice((*byte)(unsafe.Pointer(&l)), unsafe.Sizeof(l))); err != nil {
		return 0, err
	}
	for range 5000 {
		if err := getsockopt(uintptr(fd), syscall.IPPROTO_TCP, limitOption, unsafe.Pointer(&l), unsafe.Sizeof(l)); err != nil {
			return 0, err
		}
		if l.failed != uint32(syscall.EINPROGRESS) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if l.failed != 0 {
		return 0, syscall.Errno(l.failed)
	}
	return l.bytesPerSec, nil
}

func run(words []string) (uint64, error) {
	direction := map[string]uint32{"send": 0, "receive": 1, "total": 2}[words[1]]
	size, err := strconv.Atoi(words[2])
	if err != nil {
		return 0, err
	}
	value, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return 0, err
	}
	switch words[0] {
	case "process", "user", "init":
		which, who := uint32(prioNet), uint32(0) // 0: mine
		if words[0] == "user" {
			which = prioNetUser
		}
		if words[0] == "init" {
			who = 1
		}
		if value < 0 {
			value = -1 << 63
		}
		if _, err := ask(which, who, direction, uint64(value)); err != nil {
			return 0, err
		}
		holds, err := ask(which, who, direction, askOnly)
		if err != nil {
			return 0, err
		}
		_, err = ask(which, who, direction, 0)
		return holds, err
	}
	bytes := make([]byte, 16)
	binary.NativeEndian.PutUint64(bytes, uint64(value))
	option := tcpReceiveRate
	if direction == 0 {
		option = tcpSendRate
	}
	return rateOfSocket(words[0], option, bytes[:size])
}

func main() {
	for _, text := range os.Args[1:] {
		words := strings.Split(text, ":")
		if len(words) != 4 {
			fmt.Fprintf(os.Stderr, "%s: SOCKET:WHAT:SIZE:VALUE\n", text)
			os.Exit(2)
		}
		got, err := run(words)
		names := map[syscall.Errno]string{
			syscall.EINVAL: "EINVAL", syscall.EPERM: "EPERM", syscall.ENOPROTOOPT: "ENOPROTOOPT", syscall.EOPNOTSUPP: "EOPNOTSUPP",
		}
		var errno syscall.Errno
		switch {
		case err == nil:
			fmt.Println(text, got)
		case errors.As(err, &errno) && names[errno] != "":
			fmt.Println(text, names[errno])
		default:
			fmt.Println(text, err)
		}
	}
}
