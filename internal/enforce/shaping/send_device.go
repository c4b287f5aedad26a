package shaping

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// sendPrefix begins the names of the pins of attachments to the egress of devices.
const sendPrefix = "egress_device_"

func (p *sendPlace) devicePin(ifindex int) string {
	return fmt.Sprintf("%s%d_%d", sendPrefix, p.NS, ifindex)
}

// followDevices attaches the egress program to the wanted devices, and leaves the others. The same devices are wanted
// as for ingress. Devices that exceed one turn are left for later.
func (p *sendPlace) followDevices() error {
	links, err := p.Links()
	if err != nil {
		return err
	}
	left := false
	p.refused, left, err = p.Follow(links, netdevice.Turn{Up: p.s.turnUp}, p.devices, p.enter, p.leave)
	if left {
		p.rest.Look(func() { p.s.changed(p) })
	}
	return err
}

// enter gives a device a slot and attaches the egress program.
func (p *sendPlace) enter(l netlink.Link, flags uint32) error {
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
		d = bpf.Device{Slot: slot, Flags: flags}
	}
	if err := p.putDevice(index, d); err != nil {
		return err
	}
	err := p.Within(func() error { return p.s.obj.AttachDevice(index, p.devicePin(index)) })
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = p.attachFilter(index, d)
	}
	if err != nil {
		return fmt.Errorf("look at what %s sends: %w", l.Attrs().Name, err)
	}
	if err := p.s.base.QueuedDevices.Put(queuedKey(p.deviceKey(index)), uint8(1)); err != nil {
		return fmt.Errorf("say that %s has a queue: %w", l.Attrs().Name, err)
	}
	p.attached[index] = true
	return nil
}

func queuedKey(d bpf.DeviceKey) bpf.LinkKey { return bpf.LinkKey{Netns: d.Netns, Ifindex: d.Ifindex} }

// notQueued has the egress hook judge the packets that leave by a device. The map has gone if no limit is left.
func (s *sender) notQueued(d bpf.DeviceKey) error {
	err := gone(s.base.QueuedDevices.Delete(queuedKey(d)))
	if errors.Is(err, unix.EBADF) {
		return nil
	}
	return err
}

func (p *sendPlace) deviceKey(index int) bpf.DeviceKey {
	return bpf.DeviceKey{Netns: p.NS, Ifindex: uint32(index)}
}

func (p *sendPlace) putDevice(index int, d bpf.Device) error {
	if err := p.s.obj.SendSlots.Put(d.Slot, &bpf.SendSlot{Ifindex: uint32(index), Netns: p.NS}); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	if err := p.s.obj.SendDevices.Put(p.deviceKey(index), &d); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	p.devices[index] = d
	p.s.slots.Take(d.Slot)
	return nil
}

// leave detaches the program from a device. Packets of the device in the queue still leave by it.
func (p *sendPlace) leave(index int, there bool) error {
	d := p.devices[index]
	errs := []error{p.s.notQueued(p.deviceKey(index)), p.s.obj.Detach(p.devicePin(index))}
	if there {
		errs = append(errs, p.detachFilter(index, d))
	}
	errs = append(errs, gone(p.s.obj.SendDevices.Delete(p.deviceKey(index))))
	if !there {
		errs = append(errs, p.s.obj.SendSlots.Put(d.Slot, &bpf.SendSlot{}))
	}
	delete(p.devices, index)
	p.s.slots.Release(d.Slot)
	delete(p.attached, index)
	return errors.Join(errs...)
}

// sends is the egress filter on kernels before 6.6, next to the ingress filter.
var sends = netdevice.Filter{Name: "netnice-send", Parent: netlink.HANDLE_MIN_EGRESS}

func (p *sendPlace) attachFilter(index int, d bpf.Device) error {
	made, err := netdevice.AddClsact(p.NL, index)
	if err != nil {
		return err
	}
	// The last of the two filters to be removed takes the qdisc with it.
	if made || p.s.beside(p.NS).madeClsact(index) {
		d.Flags |= bpf.DeviceClsact
		if err := p.putDevice(index, d); err != nil {
			return err
		}
	}
	return sends.Put(p.NL, index, p.s.obj.NnSendOut)
}

// detachFilter removes what attachFilter added. It removes the qdisc, too, unless others use it now.
func (p *sendPlace) detachFilter(index int, d bpf.Device) error {
	others, err := sends.Remove(p.NL, index)
	if err != nil || d.Flags&bpf.DeviceClsact == 0 {
		return err
	}
	if others > 0 {
		return p.s.beside(p.NS).inheritClsact(index)
	}
	return netdevice.RemoveClsact(p.NL, index)
}

// madeClsact reports whether the ingress side has made the qdisc that the filters of a device hang on. The namespace
// may have no ingress side (nil).
func (p *place) madeClsact(index int) bool {
	return p != nil && p.devices[index].Flags&bpf.DeviceClsact != 0
}

// inheritClsact leaves the removal of that qdisc to the ingress side, if it uses the device.
func (p *place) inheritClsact(index int) error {
	if p == nil || !p.attached[index] {
		return nil
	}
	d := p.devices[index]
	d.Flags |= bpf.DeviceClsact
	return p.putDevice(index, d)
}

func (p *sendPlace) madeClsact(index int) bool {
	return p != nil && p.devices[index].Flags&bpf.DeviceClsact != 0
}

func (p *sendPlace) inheritClsact(index int) error {
	if p == nil || !p.attached[index] {
		return nil
	}
	d := p.devices[index]
	d.Flags |= bpf.DeviceClsact
	return p.putDevice(index, d)
}
