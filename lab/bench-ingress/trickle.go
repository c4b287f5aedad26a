package ingress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bench"
)

// trickle is a Python program that replaces the lab's receiver, for one connection.
type trickle struct {
	*bench.TrickleProgram
	*testbed.Series
	ended chan struct{} // no more samples

	mu  sync.Mutex
	cpu float64
}

// trickle overlooks sockets that are made with SOCK_CLOEXEC. Python makes all its sockets so, unless a program calls
// the C library directly. The program reads the arrived bytes from tcpi_bytes_received of TCP_INFO, at offset 128,
// like the lab's receiver.
const trickleProgram = `
import ctypes, json, socket, struct, sys, threading, time
c = ctypes.CDLL(None)
l = socket.socket(fileno=c.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
l.bind((sys.argv[1], int(sys.argv[2])))
l.listen()
print("listening", flush=True)
s = socket.socket(fileno=c.accept(l.fileno(), None, None))
def sample():
    while True:
        n, = struct.unpack_from("=Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)
        print(json.dumps({"t": time.monotonic_ns(), "conns": [n], "ports": {sys.argv[2]: n}, "cpu": time.process_time()}), flush=True)
        time.sleep(0.05)
threading.Thread(target=sample, daemon=True).start()
while s.recv(65536): pass
`

// startTrickle starts the program, which listens.
func startTrickle(s *bench.Site, bytesPerSec uint64) (*trickle, error) {
	p, err := bench.StartTrickle(s.Pair.B, "-d", bytesPerSec, trickleProgram, netip.AddrPortFrom(s.To, bench.FirstPort))
	if err != nil {
		return nil, err
	}
	t := &trickle{TrickleProgram: p, Series: new(testbed.Series), ended: make(chan struct{})}
	t.AddConn(testbed.Conn{Port: bench.FirstPort})
	go t.listen()
	return t, nil
}

// listen takes the program's samples until it ends.
func (t *trickle) listen() {
	defer close(t.ended)
	lines := json.NewDecoder(t.Stdout)
	for {
		var line struct {
			testbed.Sample
			CPU float64 `json:"cpu"`
		}
		if lines.Decode(&line) != nil {
			return
		}
		t.AddSample(line.Sample)
		t.mu.Lock()
		t.cpu = line.CPU
		t.mu.Unlock()
	}
}

// CPUSeconds returns the CPU time of the process up to its last sample.
func (t *trickle) CPUSeconds() (float64, error) {
	select {
	case <-t.ended:
		return 0, fmt.Errorf("trickle's program (pid %d) has ended", t.PID())
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cpu, nil
}
