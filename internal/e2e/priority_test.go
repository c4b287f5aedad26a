package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// The firewall sets the priority of a packet, by which the device's own queue chooses a class. A datagram that has waited
// for its limit still has that priority, and not that of its socket.
func TestPriorityOfQueuedDatagrams(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestUpUDP and TestSendfileAndSplice")
	t.Parallel()
	f := newField(upStage(t))
	rules(t, f.A, `table inet first {
		chain out {
			type filter hook output priority 0
			meta l4proto udp meta priority set 1:5
		}
	}`)
	h := f.A.Netlink()
	link, err := h.LinkByName(testbed.Device)
	if err != nil {
		t.Fatal(err)
	}
	at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	root := netlink.NewHtb(at)
	root.Defcls = 1
	err = h.QdiscAdd(root)
	for _, minor := range []uint16{1, 5} {
		class := netlink.ClassAttrs{LinkIndex: link.Attrs().Index, Parent: at.Handle, Handle: netlink.MakeHandle(1, minor)}
		err = errors.Join(err, h.ClassAdd(netlink.NewHtbClass(class, netlink.HtbClassAttrs{Rate: 1e9, Ceil: 1e9, Buffer: 1 << 20, Cbuffer: 1 << 20})))
	}
	if err != nil {
		t.Fatal(err)
	}
	const limit = 1e6
	x := f.python(options{in: f.A}, udpFlood, f.to(testbed.DefaultPort))
	x.read("ready")
	f.must("set", "--pid", x.pid(), "--up", "1MB/s")
	time.Sleep(2 * settle)
	count := func() map[uint16]float64 {
		classes, err := h.ClassList(link, netlink.HANDLE_NONE)
		if err != nil {
			t.Fatal(err)
		}
		bytes := map[uint16]float64{}
		for _, c := range classes {
			if s := c.Attrs().Statistics; s != nil && s.Basic != nil {
				bytes[uint16(c.Attrs().Handle)] = float64(s.Basic.Bytes) //nolint:gosec // the minor number
			}
		}
		return bytes
	}
	begin, before := testbed.Now(), count()
	time.Sleep(time.Second)
	after := count()
	seconds := testbed.Now().Sub(begin).Seconds()
	f.near("by the class that the firewall chose", begin, (after[5]-before[5])/seconds, limit, 0.1)
	if other := after[1] - before[1]; other > 0.01*limit {
		t.Errorf("%.0f bytes left by the class of packets without a priority", other)
	}
}
