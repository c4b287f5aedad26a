package probe

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Device returns the network device, in the caller's network namespace, by which packets to an address leave.
func Device(to netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", fmt.Errorf("find the route to %s: %w", to, err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("find the device of the route to %s: %w", to, err)
	}
	return link.Attrs().Name, nil
}
