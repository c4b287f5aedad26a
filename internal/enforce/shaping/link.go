package shaping

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
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
	home, err := p.s.pair.ours(p.s.pair.nl, p.link.HomeIfindex)
	if err != nil || home == nil {
		return false, err
	}
	there, err := p.s.pair.ours(p.NL, p.link.LinkIfindex)
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
	err := errors.Join(attach(p.s.pair.nl, home, p.s.obj.NnShapeHome), attach(p.NL, there, p.s.obj.NnShapeDeliver))
	p.linked = err == nil
	return err
}

func (p *place) makeLink() error {
	for n := range mostLinks {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.TxQLen = fmt.Sprintf(homeName, n), mtu, queueLen
		there := fmt.Sprintf(thereName, n)
		err := p.s.pair.nl.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: there, PeerMTU: mtu, PeerTxQLen: queueLen, PeerNamespace: netlink.NsFd(p.FD()),
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
	err = p.Within(func() error { return plain(p.NL, there, p.s.pair.alias) })
	if err != nil {
		return err
	}
	home, err := p.s.pair.nl.LinkByName(homeName)
	if err != nil {
		return fmt.Errorf("find %s: %w", homeName, err)
	}
	p.link.HomeIfindex, p.link.NetnsId = uint32(home.Attrs().Index), int32(home.Attrs().NetNsID)
	if p.link.NetnsId < 0 {
		return fmt.Errorf("network namespace %d has no number here", p.NS)
	}
	if err := plain(p.s.pair.nl, home, p.s.pair.alias); err != nil {
		return err
	}
	if err := p.attachLink(home, there); err != nil {
		return err
	}
	for _, end := range []struct {
		nl *netlink.Handle
		netlink.Link
	}{{p.NL, there}, {p.s.pair.nl, home}} {
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
		there, err := p.s.pair.ours(p.NL, p.link.LinkIfindex)
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

// ours returns the device with this index if it has this netnice's alias, else nil.
func (p *pair) ours(nl *netlink.Handle, ifindex uint32) (netlink.Link, error) {
	link, err := nl.LinkByIndex(int(ifindex))
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil, nil //nolint:nilnil // the device does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("find device %d: %w", ifindex, err)
	}
	if !netdevice.IsAliasOf(link.Attrs().Alias, p.alias) {
		return nil, nil //nolint:nilnil // the device is not this netnice's
	}
	return link, nil
}

// plain gives a device its alias, and switches off ARP and IPv6. The device then has no address and sends nothing by
// itself. The caller runs in the namespace of the device.
func plain(nl *netlink.Handle, link netlink.Link, alias string) error {
	name := link.Attrs().Name
	if err := nl.LinkSetAlias(link, alias); err != nil {
		return fmt.Errorf("mark %s as netnice's: %w", name, err)
	}
	if err := nl.LinkSetARPOff(link); err != nil {
		return fmt.Errorf("switch ARP off on %s: %w", name, err)
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6 here
		return fmt.Errorf("switch IPv6 off on %s: %w", name, err)
	}
	return nil
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
