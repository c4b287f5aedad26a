package shaping

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries is how often a list that the kernel could not give in one piece is asked for. Each try takes less than a
// millisecond for some hundred devices, and so does what interrupts it.
const dumpTries = 20

// dump returns a list of the kernel's devices, filters or the like. The kernel gives it in pieces, and says so if some came or
// went in between: the list may then lack others that were there all the time. So dump asks again.
func dump[T any](list func() ([]T, error)) (got []T, err error) {
	for range dumpTries {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

// filters lists the filters on one side of a device.
func filters(nl *netlink.Handle, link netlink.Link, parent uint32) ([]netlink.Filter, error) {
	return dump(func() ([]netlink.Filter, error) { return nl.FilterList(link, parent) })
}
