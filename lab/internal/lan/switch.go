package lan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
)

// Switch joins stations on links of their own with one segment. It forwards by address and forgets the socket of a
// packet, so a packet in the switch no longer counts in its sender's queue.
type Switch struct {
	ns       *testbed.NetNS
	address  netip.Addr // on the segment
	stations int
}

// NewSwitch attaches a switch to a segment. Its buffer holds that many packets to the segment; they come from these
// networks.
func NewSwitch(s *Segment, address netip.Addr, buffer int, networks ...netip.Prefix) (*Switch, error) {
	ns, err := testbed.NewNetNS()
	if err != nil {
		return nil, err
	}
	w := &Switch{ns: ns, address: address}
	if err := errors.Join(s.Attach(ns, address, buffer, networks...), ns.Sysctl("net/ipv4/ip_forward", "1")); err != nil {
		return nil, errors.Join(fmt.Errorf("make a switch: %w", err), w.Close())
	}
	return w, nil
}

// Attach gives a namespace a Device with that address on a link of its own to the switch. The namespace sends that
// many bytes per second over the link.
func (w *Switch) Attach(n *testbed.NetNS, address netip.Addr, bytesPerSec uint64) error {
	w.stations++
	name := fmt.Sprintf("port%d", w.stations)
	own := address.Next() // address of the switch on that link
	_, err := connect(w.ns, name, n, testbed.Device)
	if err == nil {
		err = errors.Join(setUp(w.ns, name, own), setUp(n, testbed.Device, address), capture.Segment(n),
			testbed.ShapeHTB(n, bytesPerSec), Via(n, own))
	}
	if err != nil {
		return fmt.Errorf("attach %s to the switch: %w", address, err)
	}
	return nil
}

// Via has a namespace send packets to other networks by that address.
func Via(n *testbed.NetNS, gateway netip.Addr) error {
	err := n.Netlink().RouteAdd(&netlink.Route{Gw: net.IP(gateway.AsSlice())})
	if err != nil {
		return fmt.Errorf("add route by %s: %w", gateway, err)
	}
	return nil
}

// Close removes the switch.
func (w *Switch) Close() error { return w.ns.Close() }
