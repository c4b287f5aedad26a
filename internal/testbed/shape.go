package testbed

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ShapeHTB puts an HTB class of that rate over everything that leaves the namespace by Device, as a competent
// administrator would. The one class holds the device's whole rate. burst and cburst are 1 ms of the rate and at
// least 64 KB (one largest chunk of TCP's), and the quantum is 64 KB. The leaf is the kernel's default FIFO of 1000
// packets. bytesPerSec counts link bytes, 14 more per packet than IP bytes.
func ShapeHTB(n *NetNS, bytesPerSec uint64) error {
	link, err := unshaped(n)
	if err != nil {
		return err
	}
	return addHTB(n, link, bytesPerSec)
}

// HTBShare is the weight of the traffic to a TCP port over IPv4.
type HTBShare struct {
	Port   uint16
	Weight uint32
}

// ShapeHTBShares limits a namespace's device as ShapeHTB, divided by destination port. Each port has a class with a
// rate of its part by weight, and may borrow all.
func ShapeHTBShares(n *NetNS, bytesPerSec uint64, shares []HTBShare) error {
	link, err := unshaped(n)
	if err != nil {
		return err
	}
	if err := addHTB(n, link, bytesPerSec); err != nil {
		return err
	}
	sum := uint64(0)
	for _, s := range shares {
		sum += uint64(s.Weight)
	}
	device := link.Attrs().Index
	for i, s := range shares {
		handle := netlink.MakeHandle(1, uint16(10+i))
		part := float64(s.Weight) / float64(sum)
		class := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: device, Parent: netlink.MakeHandle(1, 1), Handle: handle},
			netlink.HtbClassAttrs{
				Rate: max(uint64(float64(bytesPerSec)*8*part), 8), Ceil: bytesPerSec * 8,
				Buffer: 64 << 10, Cbuffer: 64 << 10, Quantum: uint32(min(max(float64(len(shares))*1514*part*4, 1514), 200_000)),
			})
		if err := n.link.ClassAdd(class); err != nil {
			return fmt.Errorf("add htb class of port %d: %w", s.Port, err)
		}
		filter := &netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: device, Parent: netlink.MakeHandle(1, 0), Priority: 1, Protocol: unix.ETH_P_IP},
			ClassId:     handle,
			Sel: &netlink.TcU32Sel{
				Nkeys: 1, Flags: netlink.TC_U32_TERMINAL,
				Keys: []netlink.TcU32Key{{Mask: 0xffff, Val: uint32(s.Port), Off: 20}}, // an IP header without options
			},
		}
		if err := n.link.FilterAdd(filter); err != nil {
			return fmt.Errorf("lead port %d to its class: %w", s.Port, err)
		}
	}
	return nil
}

// addHTB adds the one class to a device.
func addHTB(n *NetNS, link netlink.Link, bytesPerSec uint64) error {
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
	})
	root.Defcls = 1
	if err := n.link.QdiscAdd(root); err != nil {
		return fmt.Errorf("add htb to %s: %w", link.Attrs().Name, err)
	}
	burst := uint32(min(max(bytesPerSec/1000, 64<<10), math.MaxUint32))
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.MakeHandle(1, 0), Handle: netlink.MakeHandle(1, 1),
		},
		netlink.HtbClassAttrs{
			Rate: bytesPerSec * 8, Ceil: bytesPerSec * 8, // these two fields are in bits/s
			Buffer: burst, Cbuffer: burst, Quantum: 64 << 10,
		})
	if err := n.link.ClassAdd(class); err != nil {
		return fmt.Errorf("add htb class of %d bytes/s: %w", bytesPerSec, err)
	}
	return nil
}

// ShapeTBF puts a token bucket over everything that leaves the namespace by Device. It has the burst of ShapeHTB and
// a queue of 50 ms, at least 64 KB. bytesPerSec counts link bytes. ShapeTBF replaces an existing shaper.
func ShapeTBF(n *NetNS, bytesPerSec uint64) error {
	burst := uint32(min(max(bytesPerSec/1000, 64<<10), math.MaxUint32))
	return ShapeBucket(n, bytesPerSec, burst, burst+uint32(min(max(bytesPerSec/20, 64<<10), math.MaxInt32)))
}

// ShapeBucket is ShapeTBF with a bucket, and a queue, of the given numbers of bytes.
func ShapeBucket(n *NetNS, bytesPerSec uint64, bucket, queue uint32) error {
	link, err := unshaped(n)
	if err != nil {
		return err
	}
	err = n.link.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		},
		Rate: bytesPerSec, Limit: queue, Buffer: netlink.Xmittime(bytesPerSec, bucket),
	})
	if err != nil {
		return fmt.Errorf("add tbf of %d bytes/s to %s: %w", bytesPerSec, Device, err)
	}
	return nil
}

// Unshape removes the shaper of ShapeHTB or ShapeTBF; without either it does nothing.
func Unshape(n *NetNS) error {
	_, err := unshaped(n)
	return err
}

// unshaped removes the queueing discipline of Device, which cannot be changed
// in place from one kind to another, and returns the device.
func unshaped(n *NetNS) (netlink.Link, error) {
	link, err := n.link.LinkByName(Device)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", Device, err)
	}
	err = n.link.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT,
	}})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("remove root qdisc of %s: %w", Device, err)
	}
	return link, nil
}
