package shaping

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
)

// sendPrefix begins the names of the pins of attachments to what devices send.
const sendPrefix = "egress_device_"

func sendPin(ifindex int) string { return fmt.Sprintf("%s%d", sendPrefix, ifindex) }

// followDevices attaches the program to the devices that are there and wanted,
// the same as for what comes in, and lets go of the others.
func (s *sender) followDevices(beside *place) error {
	links, err := s.pair.nl.LinkList()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	masters := map[int]string{}
	for _, l := range links {
		masters[l.Attrs().Index] = l.Type()
	}
	// each takes a grace period of the kernel's: first those that packets go by
	slices.SortStableFunc(links, func(a, b netlink.Link) int {
		return int(b.Attrs().Flags&net.FlagUp) - int(a.Attrs().Flags&net.FlagUp)
	})
	present := map[int]bool{}
	var errs []error
	for _, l := range links {
		flags, ok := wanted(l, masters)
		if !ok {
			continue
		}
		present[l.Attrs().Index] = true
		if err := s.enter(l, flags, beside); err != nil {
			var gone netlink.LinkNotFoundError
			if _, lost := s.pair.nl.LinkByIndex(l.Attrs().Index); errors.As(lost, &gone) {
				continue // it went meanwhile
			}
			errs = append(errs, err)
		}
	}
	for index := range s.devices {
		if !present[index] {
			_, there := masters[index]
			errs = append(errs, s.leave(index, there, beside))
		}
	}
	for _, name := range s.obj.Stale(sendPrefix) {
		errs = append(errs, s.obj.Unpin(name))
	}
	return errors.Join(errs...)
}

// enter gives a device a slot and attaches the program.
func (s *sender) enter(l netlink.Link, flags uint32, beside *place) error {
	index := l.Attrs().Index
	d, known := s.devices[index]
	if known && s.attached[index] {
		return nil
	}
	if !known {
		slot, err := s.freeSlot()
		if err != nil {
			return fmt.Errorf("device %s: %w", l.Attrs().Name, err)
		}
		d = bpf.Device{Slot: slot, Flags: flags}
	}
	if err := s.putDevice(index, d); err != nil {
		return err
	}
	err := s.obj.AttachDevice(index, sendPin(index))
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = s.attachFilter(index, d, beside)
	}
	if err != nil {
		return fmt.Errorf("look at what %s sends: %w", l.Attrs().Name, err)
	}
	s.attached[index] = true
	return nil
}

func (s *sender) putDevice(index int, d bpf.Device) error {
	if err := s.obj.SendSlots.Put(d.Slot, uint32(index)); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	if err := s.obj.SendDevices.Put(uint32(index), &d); err != nil {
		return fmt.Errorf("enter device %d: %w", index, err)
	}
	s.devices[index] = d
	return nil
}

func (s *sender) freeSlot() (uint32, error) {
	used := map[uint32]bool{}
	for _, d := range s.devices {
		used[d.Slot] = true
	}
	return s.nextSlot.free(used)
}

// leave lets go of a device. Packets of it that wait still go out by it.
func (s *sender) leave(index int, there bool, beside *place) error {
	d := s.devices[index]
	errs := []error{s.obj.DetachDevice(sendPin(index))}
	if there {
		errs = append(errs, s.detachFilter(index, d, beside))
	}
	errs = append(errs, gone(s.obj.SendDevices.Delete(uint32(index))))
	if !there {
		errs = append(errs, s.obj.SendSlots.Put(d.Slot, uint32(0)))
	}
	delete(s.devices, index)
	delete(s.attached, index)
	return errors.Join(errs...)
}

// readDevices learns which devices an earlier process had entered.
func (s *sender) readDevices() error {
	var index uint32
	var d bpf.Device
	it := s.obj.SendDevices.Iterate()
	for it.Next(&index, &d) {
		s.devices[int(index)] = d
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the devices: %w", err)
	}
	return nil
}

// The filter of kernels before 6.6, beside that for what comes in.
const sendFilterName = "netnice-send"

func sendFilterAttrs(index int) netlink.FilterAttrs {
	a := filterAttrs(index)
	a.Parent = netlink.HANDLE_MIN_EGRESS
	return a
}

func (s *sender) attachFilter(index int, d bpf.Device, beside *place) error {
	made, err := addClsact(s.pair.nl, index)
	if err != nil {
		return err
	}
	// Whoever goes last of the two takes the qdisc off.
	if made || beside.madeClsact(index) {
		d.Flags |= bpf.DeviceClsact
		if err := s.putDevice(index, d); err != nil {
			return err
		}
	}
	err = s.pair.nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: sendFilterAttrs(index), Fd: s.obj.NnSendOut.FD(), Name: sendFilterName, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// detachFilter takes off what attachFilter added: the qdisc too, unless others
// use it by now.
func (s *sender) detachFilter(index int, d bpf.Device, beside *place) error {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	ours, others := false, 0
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, err := s.pair.nl.FilterList(link, parent)
		if err != nil {
			return fmt.Errorf("list the filters of device %d: %w", index, err)
		}
		for _, f := range list {
			b, is := f.(*netlink.BpfFilter)
			if is && parent == netlink.HANDLE_MIN_EGRESS && strings.HasPrefix(b.Name, sendFilterName) {
				ours = true
			} else {
				others++
			}
		}
	}
	if ours {
		if err := s.pair.nl.FilterDel(&netlink.BpfFilter{FilterAttrs: sendFilterAttrs(index)}); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("take the filter off device %d: %w", index, err)
		}
	}
	if d.Flags&bpf.DeviceClsact == 0 {
		return nil
	}
	if others > 0 {
		return beside.inheritClsact(index)
	}
	if err := s.pair.nl.QdiscDel(clsact(index)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take clsact off device %d: %w", index, err)
	}
	return nil
}

// madeClsact says whether what looks at what a device receives has made the qdisc
// that filters hang on. There may be no such place.
func (p *place) madeClsact(index int) bool {
	return p != nil && p.devices[index].Flags&bpf.DeviceClsact != 0
}

// inheritClsact leaves that qdisc to it, if it uses it.
func (p *place) inheritClsact(index int) error {
	if p == nil || !p.attached[index] {
		return nil
	}
	d := p.devices[index]
	d.Flags |= bpf.DeviceClsact
	return p.putDevice(index, d)
}
