package queuepair

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/internal/enforce/shaping/netdevice"
)

// Ours returns the device with this index if it has this netnice's alias, else nil.
func (p *Pair) Ours(nl *netlink.Handle, ifindex uint32) (netlink.Link, error) {
	link, err := nl.LinkByIndex(int(ifindex))
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil, nil //nolint:nilnil // the device does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("find device %d: %w", ifindex, err)
	}
	if !netdevice.IsAliasOf(link.Attrs().Alias, p.Alias) {
		return nil, nil //nolint:nilnil // the device is not this netnice's
	}
	return link, nil
}

// Plain gives a device its alias, and switches off ARP and IPv6. The device then has no address and sends nothing by
// itself. The caller runs in the namespace of the device.
func Plain(nl *netlink.Handle, link netlink.Link, alias string) error {
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
