package e2e

import (
	"strconv"
	"testing"
	"time"
)

// Of sockets that share a port a program of their own says which gets a datagram, and that one's limit holds.
func TestReceivesByReuseportProgram(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	x := f.python(options{in: f.A}, `
import ctypes
def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("0.0.0.0", 6001))
    return s
r, w = os.pipe()
child = os.fork()
if child != 0:
    os.read(r, 1)
    others = [bound() for _ in range(31)]  # which get nothing
    say("ready", child)
    signal.pause()
s = bound()
first = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # returns 0
s.setsockopt(socket.SOL_SOCKET, 51, struct.pack("HxxxxxxQ", 1, ctypes.addressof(first)))  # SO_ATTACH_REUSEPORT_CBPF
s.settimeout(0.1)
def received(seconds):
    n, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            n += len(s.recv(2048))
        except TimeoutError:
            pass
    return n
os.write(w, b"x")
while wait():
    received(0.2)  # what its queue held
    say("came", received(1.5))
`)
	child := x.read("ready")
	f.python(options{in: f.B}, datagramSender, f.A4.String(), "6001", "1400", "5e6", "remote")
	got := func() float64 {
		t.Helper()
		x.tell("go")
		n, err := strconv.ParseFloat(x.read("came"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n / 1.5
	}
	if n := got(); n < 3e6 {
		t.Fatalf("without a limit %.0f of 5000000 bytes/s came", n)
	}
	f.must("set", "--pid", child, "--down", "1MB/s")
	time.Sleep(2 * time.Second) // the first limit on what comes in
	if n := got(); n > 1.1e6 {
		t.Errorf("%.0f bytes/s came in, want 1000000 at most", n)
	}
}
