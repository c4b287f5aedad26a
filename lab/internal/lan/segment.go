// Package lan makes small local networks out of namespaces: stations on a shared segment, like that of a hub, and a
// switch. It owns their topology and queues, and sends nothing.
package lan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/capture"
)

const (
	medium     = "medium" // the device through which all traffic on a segment passes
	mtu        = 1500
	headers    = 14   // bytes of link header
	least      = 125  // bytes/s that a station always has
	bits       = 24   // of a network
	waiting    = 1000 // packets in a station's queue, Linux's default
	protocolIP = unix.ETH_P_IP
)

// Segment is a hub: all traffic of its stations passes through one device, one packet at a time at the segment's
// rate. Each station has a queue of its own. The queue is in that device, but counts for the station's sockets like
// a queue of its own device. Stations take turns, packet by packet. There are no collisions.
type Segment struct {
	hub         *testbed.NetNS
	through     netlink.Link // the medium
	bridge      int          // its index
	bytesPerSec uint64
	stations    int
}

// NewSegment makes a segment without stations. It counts link bytes.
func NewSegment(bytesPerSec uint64) (*Segment, error) {
	hub, err := testbed.NewNetNS()
	if err != nil {
		return nil, err
	}
	s := &Segment{hub: hub, bytesPerSec: bytesPerSec}
	if err := s.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("make a segment: %w", err), s.Close())
	}
	return s, nil
}

func (s *Segment) setUp() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "hub"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	attrs.Name, attrs.TxQLen = medium, waiting
	for _, l := range []netlink.Link{bridge, &netlink.Ifb{LinkAttrs: attrs}} {
		if err := s.hub.Netlink().LinkAdd(l); err != nil {
			return fmt.Errorf("add %s: %w", l.Attrs().Name, err)
		}
		if err := s.hub.Netlink().LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", l.Attrs().Name, err)
		}
	}
	s.bridge = bridge.Index
	var err error
	if s.through, err = s.hub.Netlink().LinkByName(medium); err != nil {
		return err
	}
	// Packets without a class, such as ARP, pass without a queue.
	if err := s.hub.Netlink().QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: s.through.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
	})); err != nil {
		return err
	}
	return s.class(netlink.MakeHandle(1, 0), netlink.MakeHandle(1, 1), s.bytesPerSec)
}

// class adds a class that may use the segment's whole rate, and this much without borrowing. A burst would let
// packets after a pause through at once.
func (s *Segment) class(parent, handle uint32, bytesPerSec uint64) error {
	return s.hub.Netlink().ClassAdd(netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: s.through.Attrs().Index, Parent: parent, Handle: handle},
		netlink.HtbClassAttrs{
			Rate: bytesPerSec * 8, Ceil: s.bytesPerSec * 8, // in bits/s
			Buffer: 1, Cbuffer: 1, Quantum: mtu + headers,
		}))
}

// Attach gives a namespace a Device with that address on the segment. A queue of that many packets holds the packets
// from its networks (none = that address).
func (s *Segment) Attach(n *testbed.NetNS, address netip.Addr, queue int, networks ...netip.Prefix) error {
	if len(networks) == 0 {
		networks = []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
	}
	s.stations++
	port, err := connect(s.hub, fmt.Sprintf("port%d", s.stations), n, testbed.Device)
	if err == nil {
		err = errors.Join(
			s.hub.Netlink().LinkSetMasterByIndex(port, s.bridge),
			s.queue(netlink.MakeHandle(1, uint16(0x10+s.stations)), queue, networks),
			redirect(s.hub, port, s.through),
			setUp(n, testbed.Device, address),
			capture.Segment(n))
	}
	if err != nil {
		return fmt.Errorf("attach %s to the segment: %w", address, err)
	}
	return nil
}

// queue adds a station's queue.
func (s *Segment) queue(handle uint32, packets int, networks []netip.Prefix) error {
	// A new class's queue is as long as the device says at that time.
	if err := s.hub.Netlink().LinkSetTxQLen(s.through, packets); err != nil {
		return err
	}
	if err := s.class(netlink.MakeHandle(1, 1), handle, least); err != nil {
		return err
	}
	for _, network := range networks {
		const source = 12 // in the IPv4 header
		mask := net.CIDRMask(network.Bits(), 32)
		from := network.Masked().Addr().As4()
		err := s.hub.Netlink().FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: s.through.Attrs().Index, Parent: netlink.MakeHandle(1, 0), Priority: 1, Protocol: protocolIP,
			},
			ClassId: handle,
			Sel: &netlink.TcU32Sel{Nkeys: 1, Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{{
				Mask: binary.BigEndian.Uint32(mask), Val: binary.BigEndian.Uint32(from[:]), Off: source,
			}}},
		})
		if err != nil {
			return fmt.Errorf("tell what %s sends: %w", network, err)
		}
	}
	return s.hub.Netlink().LinkSetTxQLen(s.through, waiting)
}

// redirect sends all packets that a port receives through another device first.
func redirect(n *testbed.NetNS, port, through netlink.Link) error {
	index := port.Attrs().Index
	if err := n.Netlink().QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}); err != nil {
		return err
	}
	return n.Netlink().FilterAdd(&netlink.U32{ // without a selector it matches all
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(through.Attrs().Index)},
	})
}

// connect joins two namespaces by a veth pair and returns the first one's end.
func connect(a *testbed.NetNS, nameA string, b *testbed.NetNS, nameB string) (netlink.Link, error) {
	peer, err := os.Open(b.Path())
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.TxQLen = nameA, mtu, waiting
	err = a.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: nameB, PeerMTU: mtu, PeerNamespace: netlink.NsFd(int(peer.Fd())),
	})
	if err != nil {
		return nil, fmt.Errorf("add veth pair: %w", err)
	}
	link, err := a.Netlink().LinkByName(nameA)
	if err != nil {
		return nil, err
	}
	return link, a.Netlink().LinkSetUp(link)
}

// setUp gives a device its address, and sets it up.
func setUp(n *testbed.NetNS, device string, address netip.Addr) error {
	link, err := n.Netlink().LinkByName(device)
	if err != nil {
		return err
	}
	return errors.Join(
		n.Netlink().AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(bits, 32)}}),
		n.Netlink().LinkSetUp(link))
}

// Drops returns the number of packets that found their queue full.
func (s *Segment) Drops() (uint64, error) {
	classes, err := s.hub.Netlink().ClassList(s.through, netlink.HANDLE_NONE)
	if err != nil {
		return 0, fmt.Errorf("list the segment's queues: %w", err)
	}
	var drops uint64
	for _, c := range classes {
		if q := c.Attrs().Statistics; q != nil && q.Queue != nil {
			drops += uint64(q.Queue.Drops)
		}
	}
	return drops, nil
}

// Close removes the hub; stations disappear with their namespaces.
func (s *Segment) Close() error { return s.hub.Close() }
