package inetd

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Activated returns Server.Inherited for the sockets that systemd has handed over (sd_listen_fds(3)), nil if there are
// none. Each socket is given once: to the service with its type, its port and, if the service names one, its address.
func Activated() func(network, address string) *os.File {
	pid, _ := strconv.Atoi(os.Getenv("LISTEN_PID"))
	count, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if pid != os.Getpid() || count < 1 {
		return nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // the sockets are not for the sessions
	}
	const first = 3
	var mu sync.Mutex
	left := map[int]socket{}
	for fd := first; fd < first+count; fd++ {
		unix.CloseOnExec(fd)
		if s, ok := look(fd); ok {
			left[fd] = s
		}
	}
	return func(network, address string) *os.File {
		mu.Lock()
		defer mu.Unlock()
		for fd, s := range left {
			if s.serves(network, address) {
				delete(left, fd)
				return os.NewFile(uintptr(fd), address)
			}
		}
		return nil
	}
}

// socket is what one is bound to.
type socket struct {
	kind int
	v6   bool
	at   net.IP
	port int
}

func look(fd int) (s socket, ok bool) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return s, false
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return s, false
	}
	s.kind = kind
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		s.at, s.port = a.Addr[:], a.Port
	case *unix.SockaddrInet6:
		s.at, s.port, s.v6 = a.Addr[:], a.Port, true
	default:
		return s, false
	}
	return s, true
}

func (s socket) serves(network, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != strconv.Itoa(s.port) {
		return false
	}
	if strings.HasPrefix(network, "udp") != (s.kind == unix.SOCK_DGRAM) {
		return false
	}
	if strings.HasSuffix(network, "4") && s.v6 || strings.HasSuffix(network, "6") && !s.v6 {
		return false
	}
	return host == "" || net.ParseIP(host).Equal(s.at)
}
