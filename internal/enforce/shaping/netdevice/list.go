package netdevice

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// listTries is how often List requests a list that the kernel cannot give in one piece. Each try takes less than a
// millisecond for some hundred devices, and so does the change that interrupts it.
const listTries = 20

// List returns a list of the kernel's devices, filters or the like. The kernel gives the list in pieces. It reports
// an interruption if entries came or went in between. The list may then lack other entries, which existed all the
// time. In this case List requests the list again.
func List[T any](list func() ([]T, error)) (got []T, err error) {
	for range listTries {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

// Filters lists the filters on one side of a device.
func Filters(nl *netlink.Handle, link netlink.Link, parent uint32) ([]netlink.Filter, error) {
	return List(func() ([]netlink.Filter, error) { return nl.FilterList(link, parent) })
}
