package shaping

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// devicePrefix begins the names of the pins of attachments to devices.
const devicePrefix = "device_"

func (p *place) devicePin(ifindex int) string {
	return fmt.Sprintf("%s%d_%d", devicePrefix, p.ns, ifindex)
}

// bareKind reports whether packets of a link with this encapsulation have no MAC header. When such packets return from
// the queue, the kernel has to see them without a MAC header, too.
func bareKind(encap string) bool {
	switch encap {
	case "none", "rawip", "void", "ppp", "ipip", "tunnel6", "sit", "gre",
		"unknown519", "unknown823", "unknown65534", "unknown65535": // raw IP, GRE over IPv6, TUN, none
		return true
	}
	return false
}

// wanted reports whether the program has to see the ingress of the device, and with which flags. Packets arrive by
// the device that has the address. A member of a bridge or a bond hands its packets on to that device.
func wanted(link netlink.Link, masters map[int]string) (flags uint32, ok bool) {
	a := link.Attrs()
	switch {
	case strings.HasPrefix(a.Alias, ownAlias): // one of netnice's own
		return 0, false
	case a.EncapType == "loopback":
		return 0, false // see nn_shape_arrived
	case a.MasterIndex != 0 && masters[a.MasterIndex] != "vrf", link.Type() == "vrf":
		return 0, false
	case a.EncapType == "ether":
		return 0, true
	case bareKind(a.EncapType):
		return bpf.DeviceBare, true
	}
	return 0, false
}

// followDevices attaches the program to the wanted devices, and detaches it from the others. The first call skips
// devices that are down, as they receive nothing. Each call skips devices that exceed the time of one turn. Another
// call follows soon for the skipped devices.
func (p *place) followDevices() error {
	links, err := dump(p.nl.LinkList)
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	t := turn{began: time.Now(), up: p.s.turnUp, upOnly: !p.entered}
	p.entered = true
	p.refused, err = followLinks(p.nl, links, p.devices, t.enters(p.devices, p.enter), p.leave)
	if t.left {
		p.rest.look(func() { p.s.changed(p) })
	}
	return err
}

// followLinks calls enter for the wanted links, and leave for the known devices that have gone or are no longer
// wanted. It takes the links in the order of their rank (unlikely), because each attachment takes a grace period of
// the kernel's. If there are more links than slots, enter refuses the last ones, and followLinks counts them.
func followLinks(nl *netlink.Handle, links []netlink.Link, known map[int]bpf.Device,
	enter func(l netlink.Link, flags uint32) error, leave func(index int, there bool) error,
) (refused int, err error) {
	masters := map[int]string{}
	for _, l := range links {
		masters[l.Attrs().Index] = l.Type()
	}
	present := map[int]bool{}
	var errs []error
	links = slices.Clone(links)
	slices.SortStableFunc(links, func(a, b netlink.Link) int { return cmp.Compare(unlikely(a), unlikely(b)) })
	for _, l := range links {
		flags, ok := wanted(l, masters)
		if !ok {
			continue
		}
		present[l.Attrs().Index] = true
		if err := enter(l, flags); err != nil {
			var gone netlink.LinkNotFoundError
			if errors.Is(err, errTooMany) {
				refused++
				continue
			}
			if _, lost := nl.LinkByIndex(l.Attrs().Index); errors.As(lost, &gone) {
				continue // the device has gone meanwhile
			}
			errs = append(errs, err)
		}
	}
	for index := range known {
		if !present[index] {
			_, there := masters[index]
			errs = append(errs, leave(index, there))
		}
	}
	return refused, errors.Join(errs...)
}

// unlikely returns the rank of a device. The higher the rank, the less likely others reach the machine by the device.
// The other end of a veth belongs to one container, and a device that is down carries nothing.
func unlikely(l netlink.Link) (rank int) {
	if l.Type() == "veth" {
		rank++
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		rank += 2
	}
	return rank
}

// enter gives a device a slot and attaches the program.
func (p *place) enter(l netlink.Link, flags uint32) error {
	index := l.Attrs().Index
	d, known := p.devices[index]
	if known && p.attached[index] {
		return nil
	}
	if !known {
		slot, err := p.s.slots.free()
		if err != nil {
			return fmt.Errorf("device %s: %w", l.Attrs().Name, err)
		}
		d = bpf.Device{Slot: slot, Flags: flags, LinkIfindex: p.link.LinkIfindex}
	}
	if err := p.putDevice(index, d); err != nil {
		return err
	}
	err := p.within(func() error { return p.s.obj.AttachDevice(index, p.devicePin(index), p.s.obj.NnShapeIn) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = p.attachFilter(index, d)
	}
	if err != nil {
		return fmt.Errorf("look at what %s receives: %w", l.Attrs().Name, err)
	}
	p.attached[index] = true
	return nil
}

func (p *place) deviceKey(index int) bpf.DeviceKey {
	return bpf.DeviceKey{Netns: p.ns, Ifindex: uint32(index)}
}

func (p *place) putDevice(index int, d bpf.Device) error {
	back := bpf.Slot{Ifindex: uint32(index), Netns: p.ns, HomeIfindex: p.link.HomeIfindex, NetnsId: p.link.NetnsId}
	if err := p.s.obj.Slots.Put(d.Slot, &back); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	if err := p.s.obj.Devices.Put(p.deviceKey(index), &d); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	p.devices[index] = d
	p.s.slots.take(d.Slot)
	return nil
}

// leave detaches a device. If the device still exists, its packets that wait in a queue return to it.
func (p *place) leave(index int, there bool) error {
	d := p.devices[index]
	errs := []error{p.s.obj.Detach(p.devicePin(index))}
	if there {
		errs = append(errs, p.detachFilter(index, d))
	}
	errs = append(errs, gone(p.s.obj.Devices.Delete(p.deviceKey(index))))
	if !there {
		errs = append(errs, p.s.obj.Slots.Put(d.Slot, &bpf.Slot{}))
	}
	delete(p.devices, index)
	p.s.slots.release(d.Slot)
	delete(p.attached, index)
	return errors.Join(errs...)
}

func gone(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// These constants name the filter for kernels before 6.6, which cannot attach links to devices. The filter precedes
// the filters of others. It hands on to them the packets that it does not redirect.
const (
	filterName     = "netnice"
	filterPriority = 1
	filterHandle   = 1
)

func filterAttrs(index int, parent uint32) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: index, Parent: parent, Handle: filterHandle,
		Protocol: unix.ETH_P_ALL, Priority: filterPriority,
	}
}

func (p *place) attachFilter(index int, d bpf.Device) error {
	made, err := addClsact(p.nl, index)
	if err != nil {
		return err
	}
	if made {
		d.Flags |= bpf.DeviceClsact
		if err := p.putDevice(index, d); err != nil {
			return err
		}
	}
	return putFilter(p.nl, index, netlink.HANDLE_MIN_INGRESS, filterName, p.s.obj.NnShapeIn)
}

// addClsact adds the qdisc that holds filters. The qdisc may exist already: another program, or an earlier netnice
// process, may have added it.
func addClsact(nl *netlink.Handle, index int) (made bool, err error) {
	err = nl.QdiscAdd(clsact(index))
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("add clsact: %w", err)
	}
	return true, nil
}

func putFilter(nl *netlink.Handle, index int, parent uint32, name string, program *ebpf.Program) error {
	err := nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: filterAttrs(index, parent), Fd: program.FD(), Name: name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

func clsact(index int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// detachFilter takes off what attachFilter added. It leaves the qdisc if others use it meanwhile.
func (p *place) detachFilter(index int, d bpf.Device) error {
	others, err := removeFilter(p.nl, index, netlink.HANDLE_MIN_INGRESS, filterName)
	if err != nil || d.Flags&bpf.DeviceClsact == 0 || others > 0 {
		return err
	}
	return removeClsact(p.nl, index)
}

// removeFilter takes netnice's filter off, which it finds by its name. It counts the filters of others on both sides
// of the device.
func removeFilter(nl *netlink.Handle, index int, at uint32, name string) (others int, err error) {
	return removeFilterOf(nl, filterAttrs(index, at), name)
}

func removeFilterOf(nl *netlink.Handle, own netlink.FilterAttrs, name string) (others int, err error) {
	index, at := own.LinkIndex, own.Parent
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	ours := false
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, err := filters(nl, link, parent)
		if err != nil {
			return 0, fmt.Errorf("list the filters of device %d: %w", index, err)
		}
		for _, f := range list {
			b, is := f.(*netlink.BpfFilter)
			if is && parent == at && strings.HasPrefix(b.Name, name) {
				ours = true
			} else {
				others++
			}
		}
	}
	if !ours {
		return others, nil
	}
	err = nl.FilterDel(&netlink.BpfFilter{FilterAttrs: own})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return others, fmt.Errorf("take the filter off device %d: %w", index, err)
	}
	return others, nil
}

func removeClsact(nl *netlink.Handle, index int) error {
	if err := nl.QdiscDel(clsact(index)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take clsact off device %d: %w", index, err)
	}
	return nil
}
