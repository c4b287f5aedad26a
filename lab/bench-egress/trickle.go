package egress

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
)

// trickle is a Python program that replaces the lab's senders, with one connection.
type trickle struct{ *bench.TrickleProgram }

// trickle overlooks sockets that are made with SOCK_CLOEXEC. Python makes all its sockets so, unless a program calls
// the C library directly.
const trickleProgram = `
import ctypes, socket, sys
s = socket.socket(fileno=ctypes.CDLL(None).socket(socket.AF_INET, socket.SOCK_STREAM, 0))
s.connect((sys.argv[1], int(sys.argv[2])))
print("connected", flush=True)
sys.stdin.readline()
b = bytes(65536)
while True: s.sendall(b)
`

// startTrickle starts the program, which connects and waits.
func startTrickle(s *bench.Site, bytesPerSec uint64) (trickle, error) {
	p, err := bench.StartTrickle(s.Pair.A, "-u", bytesPerSec, trickleProgram, netip.AddrPortFrom(s.To, bench.FirstPort))
	return trickle{p}, err
}

// Connect does nothing: the program has connected.
func (t trickle) Connect() error { return nil }

// Start lets the program send.
func (t trickle) Start() (testbed.Instant, error) {
	if _, err := io.WriteString(t.Stdin, "\n"); err != nil {
		return 0, fmt.Errorf("trickle's program: %w", err)
	}
	return testbed.Now(), nil
}

// RTT returns nothing: the program's socket gives no round trips.
func (t trickle) RTT(testbed.Instant, testbed.Instant) []time.Duration { return nil }

// Stop ends the program, which sends no report; its connection counts as an ordinary one.
func (t trickle) Stop() (testbed.SenderReport, error) {
	conns := []testbed.ConnInfo{{MSS: 1448, Timestamps: true}}
	return testbed.SenderReport{PID: t.PID(), Conns: conns}, t.Close()
}
