package shaping

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// devicePrefix begins the names of the pins of attachments to devices.
const devicePrefix = "device_"

func (p *place) devicePin(ifindex int) string {
	return fmt.Sprintf("%s%d_%d", devicePrefix, p.NS, ifindex)
}

// followDevices attaches the program to the wanted devices, and detaches it from the others. The first call skips
// devices that are down, as they receive nothing. Each call skips devices that exceed the time of one turn. Another
// call follows soon for the skipped devices.
func (p *place) followDevices() error {
	links, err := p.Links()
	if err != nil {
		return err
	}
	turn := netdevice.Turn{Up: p.s.turnUp, UpOnly: !p.entered}
	p.entered = true
	left := false
	p.refused, left, err = p.Follow(links, turn, p.devices, p.enter, p.leave)
	if left {
		p.rest.Look(func() { p.s.changed(p) })
	}
	return err
}

// enter gives a device a slot and attaches the program.
func (p *place) enter(l netlink.Link, flags uint32) error {
	index := l.Attrs().Index
	d, known := p.devices[index]
	if known && p.attached[index] {
		return nil
	}
	if !known {
		slot, err := p.s.slots.Free()
		if err != nil {
			return fmt.Errorf("device %s: %w", l.Attrs().Name, err)
		}
		d = bpf.Device{Slot: slot, Flags: flags, LinkIfindex: p.link.LinkIfindex}
	}
	if err := p.putDevice(index, d); err != nil {
		return err
	}
	err := p.Within(func() error { return p.s.obj.AttachDevice(index, p.devicePin(index), p.s.obj.NnShapeIn) })
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
	return bpf.DeviceKey{Netns: p.NS, Ifindex: uint32(index)}
}

func (p *place) putDevice(index int, d bpf.Device) error {
	back := bpf.Slot{Ifindex: uint32(index), Netns: p.NS, HomeIfindex: p.link.HomeIfindex, NetnsId: p.link.NetnsId}
	if err := p.s.obj.Slots.Put(d.Slot, &back); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	if err := p.s.obj.Devices.Put(p.deviceKey(index), &d); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	p.devices[index] = d
	p.s.slots.Take(d.Slot)
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
	p.s.slots.Release(d.Slot)
	delete(p.attached, index)
	return errors.Join(errs...)
}

func gone(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// arrives is the filter on the ingress of a device, for kernels before 6.6.
var arrives = netdevice.Filter{Name: "netnice", Parent: netlink.HANDLE_MIN_INGRESS}

func (p *place) attachFilter(index int, d bpf.Device) error {
	made, err := netdevice.AddClsact(p.NL, index)
	if err != nil {
		return err
	}
	if made {
		d.Flags |= bpf.DeviceClsact
		if err := p.putDevice(index, d); err != nil {
			return err
		}
	}
	return arrives.Put(p.NL, index, p.s.obj.NnShapeIn)
}

// detachFilter takes off what attachFilter added. It leaves the qdisc if others use it meanwhile.
func (p *place) detachFilter(index int, d bpf.Device) error {
	others, err := arrives.Remove(p.NL, index)
	if err != nil || d.Flags&bpf.DeviceClsact == 0 || others > 0 {
		return err
	}
	return netdevice.RemoveClsact(p.NL, index)
}
