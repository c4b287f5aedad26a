package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// What waits until neighbours tell their addresses is charged when it leaves, though its sockets have sent to this
// machine meanwhile. Whoever answers for the neighbours says when that is.
func TestEvadeByNeighbours(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	const limit, first, count = 1e6, 110, 40
	for i := first; i < first+count; i++ {
		moreAddresses(t, f.B, fmt.Sprintf("10.98.0.%d", i), fmt.Sprintf("fd00:98::1:%x", i))
	}
	answer := func(value string) {
		t.Helper()
		if err := f.B.Sysctl("net/ipv4/conf/all/arp_ignore", value); err != nil {
			t.Fatal(err)
		}
	}
	x := f.python(options{in: f.A}, evader+`
def sends(s, to):
    try:
        s.sendto(bytes(1400), to)
    except OSError:
        pass
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("127.0.0.1", 0))
ss = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(int(sys.argv[4]))]
say("ready")
wait()
end = time.monotonic() + 1
while time.monotonic() < end:
    sends(ss[0], (there[0], 9))
say("queued")
wait()
for i, s in enumerate(ss):
    for _ in range(80):
        sends(s, (f"10.98.0.{int(sys.argv[3]) + i}", 9))
    s.sendto(b"x", here.getsockname())
say("full")
wait()
`, f.to(testutil.DefaultPort), f.to(testutil.DefaultPort), itoa(first), itoa(count))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", fmt.Sprintf("%.0fB/s", limit))
	x.tell("go")
	x.read("queued")
	time.Sleep(settle)
	answer("8")
	begin := f.wire()
	x.tell("go")
	x.read("full")
	answer("0")
	time.Sleep(2 * time.Second) // the kernel asks once a second
	end := f.wire()
	if err := end.within(begin, limit, evadeForgotten); err != nil {
		t.Error(err)
	}
	if _, packets := end.since(begin); packets < count/2 {
		t.Errorf("%.0f packets/s: nothing was tried", packets)
	}
}
