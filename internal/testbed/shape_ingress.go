package testbed

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ifb is the device through which ShapeIngressHTB sends arriving packets.
const ifb = "ifb0"

// ShapeIngressHTB puts the HTB class of ShapeHTB over everything that reaches the namespace by Device. Linux has no
// ingress queue. Packets are therefore redirected to an ifb, whose egress has a queue, and arrive after that. The ifb's
// queue is 1000 packets like Device's, not its default of 32. bytesPerSec counts link bytes. A TUN device has no
// link header, so there they equal IP bytes.
func ShapeIngressHTB(n *NetNS, bytesPerSec uint64) error {
	if err := UnshapeIngress(n); err != nil {
		return err
	}
	link, err := n.link.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("find %s: %w", Device, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.TxQLen = ifb, 1000
	if err := n.link.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("add %s: %w", ifb, err)
	}
	through, err := n.link.LinkByName(ifb)
	if err != nil {
		return fmt.Errorf("find %s: %w", ifb, err)
	}
	if err := addHTB(n, through, bytesPerSec); err != nil {
		return err
	}
	if err := n.link.LinkSetUp(through); err != nil {
		return fmt.Errorf("set %s up: %w", ifb, err)
	}
	if err := n.link.QdiscAdd(ingress(link)); err != nil {
		return fmt.Errorf("add ingress qdisc to %s: %w", Device, err)
	}
	// u32 without a selector matches all; not every kernel has matchall.
	err = n.link.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Actions: []netlink.Action{netlink.NewMirredAction(through.Attrs().Index)},
	})
	if err != nil {
		return fmt.Errorf("redirect what %s receives to %s: %w", Device, ifb, err)
	}
	return nil
}

func ingress(link netlink.Link) *netlink.Ingress {
	return &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
}

// IngressDrops returns the number of packets that the class of ShapeIngressHTB has dropped. A packet is a unit that
// the device gives to the kernel: over a veth pair up to 64 KB.
func IngressDrops(n *NetNS) (uint64, error) {
	through, err := n.link.LinkByName(ifb)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", ifb, err)
	}
	classes, err := n.link.ClassList(through, netlink.HANDLE_NONE)
	if err != nil {
		return 0, fmt.Errorf("list classes of %s: %w", ifb, err)
	}
	var drops uint64
	for _, c := range classes {
		if s := c.Attrs().Statistics; s != nil && s.Queue != nil {
			drops += uint64(s.Queue.Drops)
		}
	}
	return drops, nil
}

// UnshapeIngress removes the objects of ShapeIngressHTB, if there are any.
func UnshapeIngress(n *NetNS) error {
	link, err := n.link.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("find %s: %w", Device, err)
	}
	err = n.link.QdiscDel(ingress(link))
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove ingress qdisc of %s: %w", Device, err)
	}
	through, err := n.link.LinkByName(ifb)
	var none netlink.LinkNotFoundError
	switch {
	case errors.As(err, &none):
		return nil
	case err != nil:
		return fmt.Errorf("find %s: %w", ifb, err)
	}
	if err := n.link.LinkDel(through); err != nil {
		return fmt.Errorf("remove %s: %w", ifb, err)
	}
	return nil
}
