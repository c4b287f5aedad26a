package e2e

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// agentName is the argv[0] by which this program knows that it is to be one of
// the limited programs of a test, not the test.
const agentName = "netnice-e2e-agent"

// What an agent may do, argv[1].
const (
	agentURing      = "uring"       // ADDRESS plain|sqpoll|fixed|unseen: send by io_uring
	agentOptions    = "options"     // print what the kernel says to others' socket options
	agentInTurn     = "in-turn"     // ADDRESS PORT: send to addresses from that one on in turn, as lines say
	agentFlood      = "flood"       // ADDRESS...: send to the first, and by children to the others
	agentIdle       = "idle"        // wait for a line
	agentExec       = "exec"        // PROGRAM ARGS...: wait for a line, and become that
	agentQUICServer = "quic-server" // ADDRESS FILE: send it to each client
	agentQUICClient = "quic-client" // ADDRESS FILE: write what the server sends
)

// agentArgs is the command line of an agent. The name is set by a shell, since
// netnice run, too, runs programs by their path.
func agentArgs(role string, args ...string) []string {
	return append([]string{"/proc/self/exe", agentName, role}, args...)
}

// maybeRunAgent turns the process into an agent if it was started as one.
func maybeRunAgent() {
	if len(os.Args) < 3 || os.Args[1] != agentName {
		return
	}
	role, args := os.Args[2], os.Args[3:]
	var err error
	switch role {
	case agentURing:
		err = sendByURing(args[0], args[1])
	case agentIdle:
		awaitWord()
	case agentOptions:
		err = printAnswers()
	case agentExec:
		awaitWord()
		err = unix.Exec(args[0], args, os.Environ())
	case agentInTurn:
		err = sendInTurn(args[0], args[1])
	case agentFlood:
		err = floodAgent(args...)
	case agentQUICServer:
		err = serveByQUIC(args[0], args[1])
	case agentQUICClient:
		err = fetchQUIC(args[0], args[1])
	default:
		err = fmt.Errorf("no agent does %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// awaitWord waits for a line from the test.
func awaitWord() { _, _ = bufio.NewReader(os.Stdin).ReadString('\n') }

// dial connects a blocking socket.
func dial(to string, kind int) (int, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
}
