package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// lateNeighbours begins a program that sends to neighbours before they have their addresses, while a second thread floods
// the destination. The text before it sets destination, separator (of its address), family and loopback. The text after
// it uses net (the destination's network), here (a socket on this machine) and kept (the sockets to keep open).
const lateNeighbours = `
net = destination[0].rsplit(separator, 1)[0]
here = socket.socket(family, socket.SOCK_DGRAM)
here.bind((loopback, 0))
ready()
def sends():
    s = socket.socket(family, socket.SOCK_DGRAM)
    while True:
        try:
            s.sendto(bytes(1400), (destination[0], 9))
        except OSError:
            pass
threading.Thread(target=sends, daemon=True).start()
time.sleep(0.2)
kept = []
`

// Datagrams are charged to the process that sends them, whatever call it uses and whatever process shares the
// socket.
func TestEvadeByDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and TestGenerated")
	evade(t, nil, []escape{
		{name: "to this machine by the same socket", least: 0.5, text: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
here.bind(("127.0.0.1", 0))
ready()
def sends(data, to):
    while True:
        try:
            s.sendto(data, to)
        except OSError:
            pass
at = here.getsockname()
for data, to in (bytes(1400), (there[0], 9)), (bytes(60000), at), (b"x", at):
    if os.fork() == 0:
        sends(data, to)
signal.pause()
`},
		{name: "spliced to a high descriptor, which nobody had when the limit came", least: 0.5, text: handed + `
r, w = os.pipe()
data = bytes(1400)
while True:
    os.write(w, data)
    try:
        os.splice(r, 2000, len(data))
    except OSError:
        os.read(r, len(data))
`},
		// Each socket's datagrams wait for its neighbour's address, while it sends to this machine.
		{name: "to neighbours that are there late", text: `
destination, separator, family, loopback = there, ".", socket.AF_INET, "127.0.0.1"
` + lateNeighbours + `
for number in range(100, 200):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    kept.append(s)
    # as much as waits for one
    count, data = (80, bytes(1400)) if number % 2 else (8, bytes(14000))
    for _ in range(count):
        s.sendto(data, (net + "." + str(number), 9))
    s.sendto(b"x", here.getsockname())
signal.pause()
`, against: `
time.sleep(0.5)
net = sys.argv[1].rsplit(".", 1)[0]
batch = "".join("address add %s.%d/24 dev nn0\n" % (net, number) for number in range(100, 200))
subprocess.run(("ip", "-batch", "-"), input=batch, text=True, check=True)
signal.pause()
`},
		{name: "to IPv6 neighbours that are there late, behind a routing header", text: `
destination, separator, family, loopback = there6, ":", socket.AF_INET6, "::1"
` + lateNeighbours + `
for number in range(0x100, 0x164):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    kept.append(s)
    to = "%s:%x" % (net, number)
    route = bytes((0, 2, 4, 0, 0, 0, 0, 0)) + socket.inet_pton(socket.AF_INET6, to)
    s.setsockopt(socket.IPPROTO_IPV6, 57, route)  # IPV6_RTHDR
    for _ in range(80):
        s.sendto(bytes(1300), (to, 9))
    s.setsockopt(socket.IPPROTO_IPV6, 57, b"")
    s.sendto(b"x", here.getsockname())
signal.pause()
`, against: `
time.sleep(0.5)
mine = subprocess.run(("ip", "-6", "-o", "addr", "show", "dev", "nn0", "scope", "global"), capture_output=True, text=True, check=True).stdout
net = mine.split("inet6 ")[1].split("/")[0].rsplit(":", 1)[0]
batch = "".join("address add %s:%x/64 dev nn0 nodad\n" % (net, number) for number in range(0x100, 0x164))
subprocess.run(("ip", "-batch", "-"), input=batch, text=True, check=True)
signal.pause()
`},
	})
}
