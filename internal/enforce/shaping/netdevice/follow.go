package netdevice

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/bpf"
)

// Links lists the devices of the namespace.
func (n *Namespace) Links() ([]netlink.Link, error) {
	links, err := List(n.NL.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	return links, nil
}

// Follow calls enter for those of the devices that a program has to be on, and leave for the known devices that have
// gone or are no longer wanted. There tells whether such a device still exists. Follow skips devices that exceed the
// time of one turn: left says that there are such. Refused counts the devices for which enter returned ErrTooMany.
func (n *Namespace) Follow(links []netlink.Link, t Turn, known map[int]bpf.Device,
	enter func(l netlink.Link, flags uint32) error, leave func(index int, there bool) error,
) (refused int, left bool, err error) {
	t.began = time.Now()
	refused, err = follow(n.NL, links, known, t.enters(known, enter), leave)
	return refused, t.left, err
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
	case strings.HasPrefix(a.Alias, OwnAlias): // one of netnice's own
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

// follow calls enter for the wanted links, and leave for the known devices that have gone or are no longer
// wanted. It takes the links in the order of their rank (unlikely), because each attachment takes a grace period of
// the kernel's. If there are more links than slots, enter refuses the last ones, and follow counts them.
func follow(nl *netlink.Handle, links []netlink.Link, known map[int]bpf.Device,
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
			if errors.Is(err, ErrTooMany) {
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
