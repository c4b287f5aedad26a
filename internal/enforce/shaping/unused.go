package shaping

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// Devices may outlive the netnice that made them. Either its pins were in a mount namespace that has ended, or somebody
// has removed the pins.

// leaveWait is how long the kernel may take to release the programs of a netnice that was just taken down.
const leaveWait = 250 * time.Millisecond

// Unused returns the names of netnice's devices in this network namespace that nobody uses any more. With remove it
// also removes them. While any netnice is up on the machine, all devices count as used.
func Unused(_ context.Context, remove bool) ([]string, error) {
	wait := time.Duration(0)
	if remove {
		wait = leaveWait
	}
	list, err := unused(func() (bool, error) { return bpf.AnyoneUp(wait) })
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for _, link := range list {
		if remove {
			// The first of the two devices of a pair takes the other with it.
			if err := removeOwn(link); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		names = append(names, link.Attrs().Name)
	}
	return names, errors.Join(errs...)
}

// unused lists devices first, and then asks whether any netnice is up. Each netnice is up before it makes devices.
func unused(up func() (bool, error)) ([]netlink.Link, error) {
	links, err := netdevice.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	list := slices.DeleteFunc(links, func(l netlink.Link) bool { return !netdevice.IsOwn(l) })
	if len(list) == 0 {
		return nil, nil
	}
	is, err := up()
	if err != nil {
		return nil, fmt.Errorf("look whether a netnice is up: %w", err)
	}
	if is {
		return nil, nil
	}
	slices.SortFunc(list, func(a, b netlink.Link) int { return strings.Compare(a.Attrs().Name, b.Attrs().Name) })
	return list, nil
}

// removeOwn removes a device, unless its number belongs to another device now. A device that has gone is no error.
func removeOwn(link netlink.Link) error {
	name := link.Attrs().Name
	now, err := netlink.LinkByIndex(link.Attrs().Index)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	if err == nil && !netdevice.IsOwn(now) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(now)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
