package e2e

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// agentName is the argv[0] that tells this program to run as one of the limited programs of a test, and not as the
// test.
const agentName = "netnice-e2e-agent"

// An agent has one of these tasks, in argv[1].
const (
	agentURing      = "uring"       // ADDRESS plain|sqpoll|fixed|unseen: send by io_uring
	agentURingReads = "uring-reads" // PORT TCP|UDP[+large][+worked][+unseen]: receive by io_uring
	agentOptions    = "options"     // print the kernel's answers to other software's socket options
	agentInTurn     = "in-turn"     // ADDRESS PORT: send in turn to addresses from that one on, for each input line
	agentFlood      = "flood"       // ADDRESS...: send to the first, and by children to the others
	agentIdle       = "idle"        // wait for a line
	agentExec       = "exec"        // PROGRAM ARGS...: wait for a line, and exec the program
	agentQUICServer = "quic-server" // ADDRESS FILE: send the file to each client
	agentQUICClient = "quic-client" // ADDRESS FILE: write the server's data to the file
)

// agentArgs returns the command line of an agent. A shell sets the name, since netnice run, too, runs programs by
// their path.
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
	case agentURingReads:
		err = receiveByURing(args[0], args[1])
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
