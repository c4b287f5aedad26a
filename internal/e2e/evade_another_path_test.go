package e2e

import (
	"fmt"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// What waits for one limit is held to the limits around it as well, whatever its socket does meanwhile: it sends to a peer
// that another limit holds for, or another process sends by it.
func TestEvadeByAnotherPath(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and TestGenerated")
	const fill = `
port = there[1]
sockets = []
for _ in range(%d):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    s.setblocking(False)
    sockets.append(s)
def fill():
    for s in sockets:
        try:
            for _ in range(64):
                s.sendto(bytes(1400), there)
        except OSError:
            pass
def touch(to):
    for s in sockets:
        try:
            s.sendto(b"x", to)
        except OSError:
            pass
`
	const another = `
ready()
subprocess.run([sys.argv[3], "set", "--user", str(os.getuid()), "--to", there[0], "--up", "30MB/s"], check=True)
other = (there[0].rsplit(".", 1)[0] + ".77", 9)
while True:
    fill()
    touch(other)
    time.sleep(0.003)
`
	const nested = `
child = os.fork()
r, w = os.pipe()
if not child:
    os.close(w)
    os.read(r, 1)
    while True:
        fill()
        time.sleep(0.001)
ready()
subprocess.run([sys.argv[3], "set", "--pid", str(child), "--up", "30MB/s"], check=True)
os.write(w, b"x")
while True:
    touch(there)
    time.sleep(0.003)
`
	args := []string{netniceBinary}
	evade(t, nil, []escape{
		{name: "a byte to another peer, 20 sockets", least: 0.5, limits: []limited{limitedUser}, args: args, text: fmt.Sprintf(fill, 20) + another},
		{name: "a byte to another peer, one socket", least: 0.5, limits: []limited{limitedUser, limitedUserBoth}, args: args, text: fmt.Sprintf(fill, 1) + another},
		{name: "a byte by the parent of who is limited, too", least: 0.5, limits: []limited{limitedUser}, args: args, text: fmt.Sprintf(fill, 20) + nested},
	})
}
