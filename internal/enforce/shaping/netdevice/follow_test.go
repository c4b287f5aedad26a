package netdevice

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
)

// TestDevicesBeyondTheSlots checks which devices get a slot if there are more devices than slots. The devices by which
// others reach the machine come first, and follow counts the devices without a slot.
func TestDevicesBeyondTheSlots(t *testing.T) {
	var links []netlink.Link
	link := func(index int, kind string) netlink.Link {
		attrs := netlink.LinkAttrs{Index: index, EncapType: "ether", Flags: 1}
		return &netlink.GenericLink{LinkAttrs: attrs, LinkType: kind}
	}
	const veths = bpf.MaxDevices + 10
	for i := range veths {
		links = append(links, link(i+1, "veth"))
	}
	links = append(links, link(veths+1, "device"), link(veths+2, "vlan"))

	known := map[int]bpf.Device{}
	var all Slots
	enter := func(l netlink.Link, _ uint32) error {
		slot, err := all.Free()
		if err != nil {
			return err
		}
		all.Take(slot)
		known[l.Attrs().Index] = bpf.Device{Slot: slot}
		return nil
	}
	leave := func(int, bool) error { return nil }
	refused, err := follow(nil, links, known, enter, leave)
	require.NoError(t, err)
	require.Equal(t, veths+2-(bpf.MaxDevices-1), refused)
	require.Len(t, known, bpf.MaxDevices-1)
	require.Contains(t, known, veths+1)
	require.Contains(t, known, veths+2)
}
