package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// Datagrams that leave by a stacked device are charged once, whole and in fragments. They are not charged again as
// packets of the tunnel, or after they have waited for their neighbour.
func TestUpStacked(t *testing.T) {
	t.Parallel()
	for name, stack := range testutil.SubsetOf(stacks, "vxlan", "macvlan") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(upStage(t))
			f.segmented()
			stack(t, f.A, "10.97.0.1/24", f.B4.String())
			stack(t, f.B, "10.97.0.2/24", f.A4.String())
			for _, bytes := range []string{"1300", "14000"} {
				x := f.python(options{in: f.A}, `
data = bytes(int(sys.argv[1]))
say("ready")
wait()
modest = os.fork() == 0  # passes beside the queue that the other needs
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin, sent = time.monotonic(), 0
while True:
    try:
        s.sendto(data, ("10.97.0.2", 9))
    except OSError:
        pass
    sent += len(data)
    ahead = sent / 1e6 - (time.monotonic() - begin)
    if modest and ahead > 0.001:
        time.sleep(ahead)
`, bytes)
				x.read("ready")
				f.must("set", "--pid", x.pid(), "--up", "3MB/s")
				x.tell("go")
				e := escape{subject: "pid:" + x.pid()}
				if name == "vxlan" {
					e.over = 0.06 // the tunnel's own headers
				}
				f.contained(e, f.wire(), evadeLimit)
				x.close()
				<-x.ended
			}
		})
	}
}
