package netdevice

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// These constants name a filter for kernels before 6.6, which cannot attach links to devices. The filter precedes
// the filters of others. It hands on to them the packets that it does not redirect.
const (
	filterPriority = 1
	filterHandle   = 1
)

// Filter is a program that a qdisc of a device runs.
type Filter struct {
	Name   string
	Parent uint32 // netlink.HANDLE_MIN_INGRESS or HANDLE_MIN_EGRESS
	// Later says that it comes after the filters of queues.
	Later bool
}

func (f Filter) attrs(index int) netlink.FilterAttrs {
	attrs := netlink.FilterAttrs{
		LinkIndex: index, Parent: f.Parent, Handle: filterHandle,
		Protocol: unix.ETH_P_ALL, Priority: filterPriority,
	}
	if f.Later {
		attrs.Priority++
	}
	return attrs
}

// Put puts the filter on a device, in place of an earlier one of that name. AddClsact comes before it.
func (f Filter) Put(nl *netlink.Handle, index int, program *ebpf.Program) error {
	err := nl.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: f.attrs(index), Fd: program.FD(), Name: f.Name, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// Remove takes the filter off a device, which it finds by the beginning of its name. It counts the filters of others on
// both sides of the device.
func (f Filter) Remove(nl *netlink.Handle, index int) (others int, err error) {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	ours := false
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, err := Filters(nl, link, parent)
		if err != nil {
			return 0, fmt.Errorf("list the filters of device %d: %w", index, err)
		}
		for _, other := range list {
			b, is := other.(*netlink.BpfFilter)
			if is && parent == f.Parent && strings.HasPrefix(b.Name, f.Name) {
				ours = true
			} else {
				others++
			}
		}
	}
	if !ours {
		return others, nil
	}
	err = nl.FilterDel(&netlink.BpfFilter{FilterAttrs: f.attrs(index)})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return others, fmt.Errorf("take the filter off device %d: %w", index, err)
	}
	return others, nil
}

// RemoveClsact removes the qdisc that AddClsact added. A qdisc that has gone already is no error.
func RemoveClsact(nl *netlink.Handle, index int) error {
	if err := nl.QdiscDel(clsact(index)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take clsact off device %d: %w", index, err)
	}
	return nil
}

// AddClsact adds the qdisc that holds filters. The qdisc may exist already: another program, or an earlier netnice
// process, may have added it.
func AddClsact(nl *netlink.Handle, index int) (made bool, err error) {
	err = nl.QdiscAdd(clsact(index))
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("add clsact: %w", err)
	}
	return true, nil
}

func clsact(index int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}
