package e2e

import (
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// A program receives no more in fragments than its limit lets through, whatever their order is, wherever the first of
// them ends, and whatever headers come behind the fragment header.
func TestEvadeByFragments(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownUDP and TestGeneratedReceiving")
	t.Parallel()
	const read = countsRead + `
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(("::", 6000))
say("ready")
while True:
    got += len(s.recv(1 << 17))
`
	// Datagrams of 8 KB.
	const send = `
to4, to6, from6, from4 = sys.argv[1:5]
size = 8000

def datagram(source, to):
    udp = struct.pack("!HHHH", 7777, 6000, 8 + size, 0) + bytes(size)
    sum = checksum(source + to + struct.pack("!II", len(udp), 17) + udp) or 0xffff
    return udp[:6] + struct.pack("!H", sum) + udp[8:]

def parts(data, each=1400):
    return [(at, data[at:at + each], at + each < len(data)) for at in range(0, len(data), each)]

def four(id):
    source, to = socket.inet_aton(from4), socket.inet_aton(to4)
    return [struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(part), id, more << 13 | at >> 3, 64, 17, 0) + source + to + part
        for at, part, more in parts(datagram(source, to))]

def six(id, options=b""):
    source, to = socket.inet_pton(socket.AF_INET6, from6), socket.inet_pton(socket.AF_INET6, to6)
    packets = []
    for at, part, more in parts(options + datagram(source, to)):
        piece = struct.pack("!BBHI", 60 if options else 17, 0, at | more, id) + part
        packets.append(struct.pack("!IHBB", 0x60000000, len(piece), 44, 64) + source + to + piece)
    return packets

def optional(id):
    return six(id, bytes((17, 0, 1, 4, 0, 0, 0, 0)))

def go(make, order=list, rate=10e6):
    version = 4 if make is four else 6
    s = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    due, id = time.monotonic(), 0
    while True:
        id = id % 65535 + 1
        for packet in order(make(id)):
            try:
                s.sendto(packet, (to4 if version == 4 else to6, 0))
            except OSError:
                pass
        due = max(due + size / rate, time.monotonic() - 0.01)
        time.sleep(max(0, due - time.monotonic()))

def behind(packets):
    return packets[1:] + packets[:1]
`
	const serve = countsRead + `
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("", 6000))
l.listen()
say("ready")
while True:
    c, _ = l.accept()
    with c:
        while True:
            data = c.recv(1 << 16)
            if not data:
                break
            got += len(data)
`
	// The connection's segments go through a tun device to the program itself, which divides each in the middle of
	// TCP's header.
	const divide = `
import fcntl
to, of = sys.argv[1], sys.argv[4]
device = next(name for _, name in socket.if_nameindex() if name != "lo")
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"divided", 0x1001))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
subprocess.run(["ip", "link", "set", "divided", "up", "mtu", "1500"], check=True)
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
subprocess.run(["ip", "route", "add", to + "/32", "dev", "divided", "src", of], check=True)

def pump(order):
    id = 0
    while True:
        packet = os.read(tun, 1 << 16)
        if packet[0] >> 4 != 4:
            continue
        head, body = packet[:20], packet[20:]
        pieces = [(0, body, 0)]
        if len(body) > 100:
            pieces = [(0, body[:8], 1), (8, body[8:], 0)]
        id = id % 65535 + 1
        for at, piece, more in order(pieces):
            fields = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(piece), id, more << 13 | at >> 3, 64, packet[9], 0)
            try:
                out.sendto(fields + head[12:20] + piece, (to, 0))
            except OSError:
                pass

def go(order):
    threading.Thread(target=pump, args=(order,), daemon=True).start()
    flood(connect(to + ":6000"), up_to=10e6)
    signal.pause()
`
	for _, tt := range []struct {
		name, receive, send string
		least, most         float64
	}{
		// The parts of a datagram whose first is refused stay in the kernel for 30 s. That soon leaves no room for others.
		{"the first part comes last", read, send + "go(four, reversed)", 0, 1.1},
		{"the first part comes last, within the limit", read, send + "go(four, reversed, 0.8e6)", 0.75, 0.85},
		{"the first part comes last, IPv6", read, send + "go(six, reversed)", 0, 1.1},
		{"the first part comes last, IPv6, within the limit", read, send + "go(six, reversed, 0.8e6)", 0.75, 0.85},
		{"only the first part comes last", read, send + "go(four, behind)", 0, 1.1},
		{"options behind the fragment header", read, send + "go(optional)", 0.5, 1.1},
		{"options behind the fragment header, the first part comes last", read, send + "go(optional, behind)", 0, 1.1},
		{"the first part ends in TCP's header", serve, divide + "go(list)", 0.5, 1.1},
		{"the first part ends in TCP's header and comes last", serve, divide + "go(reversed)", 0.01, 1.1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newInbound(newStage(t), testutil.MustPair(t)).readsWithin(tt.least, tt.most, tt.receive, tt.send)
		})
	}
}
