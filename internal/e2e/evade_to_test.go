package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// A limit for a destination covers the datagrams that a UDP socket sends there, whatever addresses its calls named
// before.
func TestEvadeDestinations(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestSetToDestinations; sockets that named other addresses before are tested here only")
	t.Parallel()
	f := newField(upStage(t))
	f.segmented()
	for _, how := range testutil.Subset([]string{
		// One call names another address. Later calls name none, and the datagrams go to the connected peer.
		`
s.connect(limited)
def send():
    s.sendto(b"x", other)
    for _ in range(20):
        try:
            s.send(bytes(1400))
        except OSError:
            pass
`,
		// The same calls use IPv6.
		`
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.connect((there6[0], 9))
def send():
    s.sendto(b"x", ("::1", 9))
    for _ in range(20):
        try:
            s.send(bytes(1400))
        except OSError:
            pass
`,
		// The sendmsg hook gets no address if the message has ancillary data.
		`
s.connect(limited)
def send():
    s.sendmsg([bytes(1400)], [(socket.IPPROTO_IP, socket.IP_TTL, struct.pack("i", 64))])
`,
		`
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.connect((there6[0], 9))
def send():
    s.sendmsg([bytes(1400)], [(socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT, struct.pack("i", 64))])
`,
		// The first call of a corked datagram names another address. The socket is connected before the datagram is
		// complete, and the kernel sends it to the peer (Linux 6.18).
		`
near = (there[0].rpartition(".")[0] + ".9", 9)
def send():
    s.sendto(bytes(1400), socket.MSG_MORE, near)
    s.connect(limited)
    s.send(b"")
`,
	}, 0, 2) {
		x := f.python(options{in: f.A}, evader+`
limited, other = (there[0], 9), (sys.argv[3], 9)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
`+how+`
ready()
while True:
    try:
        send()
    except OSError:
        pass
`, f.to(testbed.DefaultPort), "["+f.B6.String()+"]:"+itoa(testbed.DefaultPort), f.A4.String())
		x.read("ready")
		f.must("set", "--pid", x.pid(), "--to", f.B4.String(), "--up", "3MB/s")
		f.must("set", "--pid", x.pid(), "--to", f.B6.String(), "--up", "3MB/s")
		begin := f.wire()
		x.tell("go")
		x.read("going")
		f.contained(escape{least: 0.5}, begin, evadeLimit)
		x.close()
		<-x.ended
	}
}
