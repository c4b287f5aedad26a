package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// marks prints on request the traffic classes of the packets that arrive at each port in half a second.
const marks = `
import json, struct
say("ready")
while True:
    wait()
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
    s.bind((sys.argv[1], 0))
    s.settimeout(0.05)
    seen, end = {}, time.monotonic() + 0.5
    while time.monotonic() < end:
        try:
            p = s.recv(100)
        except OSError:
            continue
        if p[0] >> 4 == 4:
            tos, port = p[1], struct.unpack("!H", p[22:24])[0]
        elif p[0] >> 4 == 6:
            tos, port = struct.unpack("!H", p[:2])[0] >> 4 & 255, struct.unpack("!H", p[42:44])[0]
        else:
            continue
        seen.setdefault(port, {}).setdefault(tos, 0)
        seen[port][tos] += 1
    s.close()
    say("marks", json.dumps(seen))
`

// sendsBoth sends by TCP over IPv6 to one address. It also sends by UDP over IPv4 to another, with a traffic class
// and an ECN bit of its own.
const sendsBoth = `
s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
host, port = sys.argv[1].rsplit(":", 1)
s.connect((host.strip("[]"), int(port)))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x22)
host, port = sys.argv[2].rsplit(":", 1)
u.connect((host, int(port)))
say("ready")
while True:
    try:
        s.send(bytes(5000))
        u.send(bytes(500))
    except OSError:
        pass
    time.sleep(0.01)
`

// classes checks the traffic classes that such a script sees, a moment from now.
func (f *field) classes(watch *script, what string, want map[uint16]uint8) {
	f.t.Helper()
	time.Sleep(300 * time.Millisecond)
	watch.tell("look")
	seen := map[uint16]map[uint8]int{}
	if err := json.Unmarshal([]byte(watch.read("marks")), &seen); err != nil {
		f.t.Fatal(err)
	}
	for port, tos := range want {
		f.t.Logf("%s: port %d has %v", what, port, seen[port])
		if len(seen[port]) != 1 || seen[port][tos] == 0 {
			f.t.Errorf("%s: packets to port %d have the classes %v, want %#x alone", what, port, seen[port], tos)
		}
	}
}

// The egress of a subject, by TCP and UDP, IPv4 and IPv6, carries its mark, by a limited link and without one. The
// mark is also on connections that were open before. ECN bits stay, others' packets are unchanged, and so are the subject's
// once the mark is lifted.
func TestMark(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	link := linkOf(t, f.A, testbed.Device)
	x, y := f.send(testbed.SenderConfig{}), f.send(testbed.SenderConfig{})
	f.must("set", link, "--up", "4MB/s")
	f.ports++
	v6 := f.ports
	f.ports++
	udp := f.ports
	both := f.python(options{in: f.A}, sendsBoth, fmt.Sprintf("[%s]:%d", f.B6, v6), f.to(udp))
	both.read("ready")
	watch := f.python(options{in: f.B}, marks, testbed.Device)
	watch.read("ready")
	look := func(what string, want map[uint16]uint8) {
		t.Helper()
		f.classes(watch, what, want)
	}
	look("without a mark", map[uint16]uint8{x.port: 0, y.port: 0, v6: 0, udp: 0x22})
	f.must("set", "--pid", x.pid(), "--dscp", "af41")
	f.must("set", "--pid", both.pid(), "--dscp", "ef")
	look("marked", map[uint16]uint8{x.port: 34 << 2, y.port: 0, v6: 46 << 2, udp: 46<<2 | 2})
	f.near("a marked sender and one without", testbed.Now(), f.charged(link, time.Second), 4e6, 0.03)
	if n := f.nodes()["pid:"+x.pid()]; n.DSCP == nil || *n.DSCP != 34 {
		t.Errorf("a mark is shown as %+v", n)
	}
	f.must("set", "--pid", x.pid(), "--dscp", "cs1")
	f.must("set", "--pid", both.pid(), "--dscp", "none")
	look("another, and none", map[uint16]uint8{x.port: 8 << 2, y.port: 0, v6: 0, udp: 0x22})
	f.must("unset", link)
	look("without the link", map[uint16]uint8{x.port: 8 << 2, y.port: 0})
	f.must("set", "--pid", x.pid(), "--dscp", "none")
	look("none", map[uint16]uint8{x.port: 0})
	f.refused(f.netnice("set", "--pid", x.pid(), "--dscp", "64"), "is no DSCP", "0..63")
}
