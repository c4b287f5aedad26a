package e2e

import (
	"strconv"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
)

// A program paces itself by SO_MAX_PACING_RATE. The lower of both rates holds. The program reads its own rate back,
// and has it again after the limit.
func TestOwnPacing(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	a := f.ports + 1
	x := f.python(options{in: f.A}, `
SO_MAX_PACING_RATE = 47
s = connect(sys.argv[1])
threading.Thread(target=flood, args=(s,), daemon=True).start()
say("ready")
while True:
    word = wait()
    if word != "get":
        s.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("Q", int(word)))
    say("rate", struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))[0],
        struct.unpack("I", s.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 4))[0])
`, f.to(a))
	x.read("ready")
	const none = 1<<64 - 1
	says := func(word string, want uint64) {
		t.Helper()
		x.tell(word)
		long := strconv.FormatUint(want, 10)
		short := strconv.FormatUint(min(want, 1<<32-1), 10)
		if got := x.read("rate"); got != long+" "+short {
			t.Errorf("after %q its own rate reads as %s, want %s %s", word, got, long, short)
		}
	}
	// The option counts payload, and netnice counts IP packets.
	own := func(rate float64) float64 { return rate * perByte }
	paces := func(what string, rate float64) {
		t.Helper()
		f.holdsFor(what, testbed.Now(), span, rate, 0.06, a)
	}

	says("get", none)
	f.must("set", "--pid", x.pid(), "--up", "10MB/s")
	says("get", none)
	f.must("unset", "--pid", x.pid())
	says("get", none)
	says("2000000", 2e6)
	paces("its own, no limit", own(2e6))
	f.must("set", "--pid", x.pid(), "--up", "10MB/s")
	paces("its own 2, limit 10", own(2e6))
	says("get", 2e6)
	says("30000000", 30e6)
	paces("its own 30, limit 10", 10e6)
	says("get", 30e6)
	says("1000000", 1e6)
	paces("its own 1, limit 10", own(1e6))
	says("8000000000", 8e9)
	says("30000000", 30e6)
	f.must("unset", "--pid", x.pid())
	says("get", 30e6)
	paces("its own 30, lifted", own(30e6))
	says(strconv.FormatUint(none, 10), none)
	f.free("none of its own, lifted", testbed.Now(), freely, a)
}
