package stall

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// daemonPID returns the process that listens on a socket. If a service manager has opened the socket, or the daemon
// takes no calls any more, it returns the holder of the lock beside the socket. 0 = neither is known.
func daemonPID(socket, proc string) int {
	if pid := listenerPID(socket); pid > 1 {
		return pid
	}
	text, err := os.ReadFile(strings.TrimSuffix(socket, ".sock") + ".lock")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	// A daemon that was killed leaves its process id there. Another process may have got the same id since then.
	status, err := os.ReadFile(filepath.Join(cmp.Or(proc, "/proc"), strconv.Itoa(pid), "status"))
	if err != nil || !strings.HasPrefix(string(status), "Name:\tnetnice\n") {
		return 0
	}
	return pid
}

// listenerPID asks the kernel for the process that listens, 0 = the kernel does not tell.
func listenerPID(socket string) int {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	file, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
