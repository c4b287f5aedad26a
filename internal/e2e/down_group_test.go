package e2e

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// groupReader joins a group (empty: broadcast) and prints the bytes that it has received in each half second.
const groupReader = `
group, device, address = sys.argv[1:4]
v6 = ":" in group
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(("", 6001))
if v6:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("I", socket.if_nametoindex(device)))
elif group:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(address))
say("ready")
while True:
    s.recv(2048)
    got, begin = 0, time.monotonic()
    while time.monotonic() < begin + 0.5:
        got += len(s.recv(2048)) + (48 if v6 else 28)
    say("rate", got / (time.monotonic() - begin))
`

// groupSender sends a number of bytes a second to a group, and prints the bytes that it has sent in each half
// second.
const groupSender = `
to, device, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
v6 = ":" in to
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
due = time.monotonic()
while True:
    got, begin = 0, time.monotonic()
    while time.monotonic() < begin + 0.5:
        s.sendto(bytes(1400), (to, 6001))
        got += 1400 + (48 if v6 else 28)
        due = max(due, time.monotonic() - 0.05) + 1428 / rate
        time.sleep(max(0, due - time.monotonic()))
    say("rate", got / (time.monotonic() - begin))
`

// Every member gets a datagram for a group. A limit on one member delays no other, whichever of them joined first,
// and not the sender, even as a member of the group itself.
func TestDownGroup(t *testing.T) {
	t.Parallel()
	const limit, rate = 500e3, 2e6
	for _, group := range testutil.Subset([]string{"239.7.7.7", "ff15::7", ""}, 0, 1) {
		t.Run(cmp.Or(group, "broadcast"), func(t *testing.T) {
			t.Parallel()
			f := newInbound(newStage(t), testutil.MustPair(t))
			limited := options{in: f.A, under: []string{netniceBinary, "run", "--down", fmt.Sprintf("%.0fB/s", limit), "--"}}
			readers := []*script{f.groupReader(limited, group), f.groupReader(options{in: f.A}, group), f.groupReader(limited, group)}
			begin := testbed.Now()
			f.groupSender(f.B, group, rate)
			for i, r := range readers {
				f.near(fmt.Sprintf("what reader %d has", i+1), begin, r.rate(3), rate, 0.1)
			}
			sender := f.groupSender(f.A, group, rate)
			f.near("what is sent from here", begin, sender.rate(3), rate, 0.1)
		})
	}
}

// A limit on the host counts traffic to groups once for all members.
func TestDownGroupOfHost(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestDownHost")
	machineAlone(t)
	const limit, rate = 500e3, 2e6
	f := newInbound(newStage(t), testutil.MustPair(t))
	readers := []*script{f.groupReader(options{in: f.A}, "239.7.7.7"), f.groupReader(options{in: f.A}, "239.7.7.7")}
	f.must("set", "--host", "--down", fmt.Sprintf("%.0fB/s", limit))
	begin := testbed.Now()
	f.groupSender(f.B, "239.7.7.7", rate)
	for i, r := range readers {
		f.near(fmt.Sprintf("what reader %d has", i+1), begin, r.rate(4), limit, 0.1)
	}
}

func (f *inbound) groupReader(o options, group string) *script {
	f.t.Helper()
	r := f.python(o, groupReader, group, testbed.Device, f.A4.String())
	r.read("ready")
	return r
}

func (f *inbound) groupSender(in *testbed.NetNS, group string, rate float64) *script {
	f.t.Helper()
	return f.python(options{in: in}, groupSender, cmp.Or(group, "255.255.255.255"), testbed.Device, fmt.Sprint(rate))
}

// rate returns the rate that a program prints after some other lines.
func (x *script) rate(after int) (rate float64) {
	x.t.Helper()
	for range after {
		if _, err := fmt.Sscan(x.read("rate"), &rate); err != nil {
			x.t.Fatal(err)
		}
	}
	return rate
}
