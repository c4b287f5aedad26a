package shaping

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// A link joins another network namespace to the namespace of the pair. It is a pair of veth devices with one end in
// each namespace. The end beside the pair is netnice0h and the other end is netnice0n, or both have the next free
// number.
const (
	homeName  = "netnice%dh"
	thereName = "netnice%dn"
	mostLinks = bpf.MaxDevices
	// homeID is the namespace ID of a place in the daemon's own namespace. BPF takes -1 for the current namespace.
	homeID = -1
)

// ensureLink makes the link if it is missing. The daemon's own namespace needs none.
func (p *place) ensureLink() error {
	if p.IsHome() {
		return nil
	}
	found, err := p.findLink()
	if err != nil || found {
		return err
	}
	if err := p.removeLink(); err != nil {
		return err
	}
	if err := p.makeLink(); err != nil {
		return err
	}
	// The devices that were entered before lead to the previous link.
	for index, d := range p.devices {
		d.LinkIfindex = p.link.LinkIfindex
		if err := p.putDevice(index, d); err != nil {
			return err
		}
	}
	return nil
}

// findLink reports whether the link exists as it was made. If so, findLink replaces the programs at its ends, which
// an earlier process may have attached, by those of this process.
func (p *place) findLink() (bool, error) {
	if p.link.LinkIfindex == 0 {
		return false, nil
	}
	home, err := p.s.pair.Ours(p.s.pair.NL, p.link.HomeIfindex)
	if err != nil || home == nil {
		return false, err
	}
	there, err := p.s.pair.Ours(p.NL, p.link.LinkIfindex)
	if err != nil || there == nil {
		return false, err
	}
	if home.Attrs().ParentIndex != there.Attrs().Index || home.Attrs().NetNsID != int(p.link.NetnsId) {
		return false, nil
	}
	return true, p.attachLink(home, there)
}

// attachLink attaches to both ends the programs that lead packets on. It does so once.
func (p *place) attachLink(home, there netlink.Link) error {
	if p.linked {
		return nil
	}
	err := errors.Join(attach(p.s.pair.NL, home, p.s.obj.NnShapeHome), attach(p.NL, there, p.s.obj.NnShapeDeliver))
	p.linked = err == nil
	return err
}

func (p *place) makeLink() error {
	for n := range mostLinks {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf(homeName, n), queuepair.MTU, queuepair.QueueLen
		there := fmt.Sprintf(thereName, n)
		err := p.s.pair.NL.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: there, PeerMTU: queuepair.MTU, PeerTxQLen: queuepair.QueueLen, PeerNamespace: netlink.NsFd(p.FD()),
		})
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("make a pair of devices to network namespace %d: %w", p.NS, err)
		}
		if err := p.setUpLink(attrs.Name, there); err != nil {
			return errors.Join(err, p.removeLink())
		}
		return nil
	}
	return fmt.Errorf("%w: links to network namespaces; remove what nobody uses: ip link del netnice0h", netdevice.ErrTooMany)
}

func (p *place) setUpLink(homeName, thereName string) error {
	there, err := p.NL.LinkByName(thereName)
	if err != nil {
		return fmt.Errorf("find %s: %w", thereName, err)
	}
	p.link.LinkIfindex = uint32(there.Attrs().Index)
	err = p.Within(func() error { return queuepair.Plain(p.NL, there, p.s.pair.Alias) })
	if err != nil {
		return err
	}
	home, err := p.s.pair.NL.LinkByName(homeName)
	if err != nil {
		return fmt.Errorf("find %s: %w", homeName, err)
	}
	p.link.HomeIfindex, p.link.NetnsId = uint32(home.Attrs().Index), int32(home.Attrs().NetNsID)
	if p.link.NetnsId < 0 {
		return fmt.Errorf("network namespace %d has no number here", p.NS)
	}
	if err := queuepair.Plain(p.s.pair.NL, home, p.s.pair.Alias); err != nil {
		return err
	}
	if err := p.attachLink(home, there); err != nil {
		return err
	}
	for _, end := range []struct {
		nl *netlink.Handle
		netlink.Link
	}{{p.NL, there}, {p.s.pair.NL, home}} {
		if err := end.nl.LinkSetUp(end.Link); err != nil {
			return fmt.Errorf("set %s up: %w", end.Attrs().Name, err)
		}
	}
	return nil
}

// removeLink removes both ends by removing the one in the namespace. A link that has gone already is no error.
func (p *place) removeLink() error {
	var errs []error
	p.linked = false
	if p.link.LinkIfindex != 0 {
		there, err := p.s.pair.Ours(p.NL, p.link.LinkIfindex)
		if err == nil && there != nil {
			err = p.NL.LinkDel(there)
		}
		if err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove the link of network namespace %d: %w", p.NS, err))
		}
	}
	p.link.LinkIfindex, p.link.HomeIfindex, p.link.NetnsId = 0, 0, homeID
	return errors.Join(errs...)
}

// attach attaches a program to one of netnice's own devices. The program goes with the device. A filter takes less
// than a millisecond to attach, while tcx waits for a grace period of 10 ms.
func attach(nl *netlink.Handle, link netlink.Link, program *ebpf.Program) error {
	index := link.Attrs().Index
	_, err := netdevice.AddClsact(nl, index)
	if err == nil {
		err = arrives.Put(nl, index, program)
	}
	if err != nil {
		return fmt.Errorf("lead packets on from %s: %w", link.Attrs().Name, err)
	}
	return nil
}
