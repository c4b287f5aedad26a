// Package netdevice has what every kind of per-namespace queue does with the network devices of a namespace: it opens the
// namespace, finds the devices that programs have to be on, enters them in turns, notices devices that come and go, and
// puts filters on them where the kernel has nothing better. It knows the devices that netnice itself has made by their
// alias. It knows no queue and no limit.
package netdevice

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Namespace is a network namespace that netnice works in. The file and the sockets that netnice holds keep the
// namespace alive after its last process.
type Namespace struct {
	NS    uint32 // inode number
	NL    *netlink.Handle
	Owner uint32 // the user who made it, in a user namespace of their own; 0: root made it

	file *os.File // nil: it is the daemon's own namespace
}

// Home returns the daemon's own namespace, by a handle of netlink in it.
func Home(ns uint32, nl *netlink.Handle) Namespace { return Namespace{NS: ns, NL: nl} }

// Open opens a network namespace other than the daemon's. It returns nil without an error if the namespace has
// gone, or if the path leads to another one meanwhile. A user other than root may have at most
// enforce.MostNamespaces open ones. With more, one user could use up all devices and slots. The function of returns how
// many an owner has already.
func Open(ns uint32, path string, of func(owner uint32) int) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the last process of the namespace has ended
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("look at network namespace %d: %w", ns, err), file.Close())
	}
	if uint32(st.Ino) != ns {
		return nil, file.Close() // the process has moved to another namespace
	}
	owner, err := ownerOf(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look whose network namespace %d is: %w", ns, err), file.Close())
	}
	if owner != 0 && of(owner) >= enforce.MostNamespaces {
		return nil, errors.Join(fmt.Errorf("%w: network namespaces of uid %d", ErrTooMany, owner), file.Close())
	}
	n := &Namespace{NS: ns, file: file, Owner: owner}
	if n.NL, err = netlink.NewHandleAt(netns.NsHandle(file.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in network namespace %d: %w", ns, err), file.Close())
	}
	return n, nil
}

// ownerOf returns the user who made a network namespace in a user namespace of their own. If user namespaces are
// nested, this is the owner of the outermost one below the daemon's. 0 is root.
func ownerOf(file *os.File) (uint32, error) {
	var home unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &home); err != nil {
		return 0, err
	}
	fd, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return 0, err
	}
	owner := uint32(0)
	for range 34 { // the kernel allows 32 nested user namespaces
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, errors.Join(err, unix.Close(fd))
		}
		if st.Ino == home.Ino {
			break
		}
		if owner, err = unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID); err != nil {
			return 0, errors.Join(err, unix.Close(fd))
		}
		outer, err := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		if err != nil {
			break // the daemon is in none of the outer ones
		}
		_ = unix.Close(fd)
		fd = outer
	}
	return owner, unix.Close(fd)
}

// IsHome reports whether it is the daemon's own namespace.
func (n *Namespace) IsHome() bool { return n.file == nil }

// Shut closes the watcher, the netlink handle, and the file of the namespace.
func (n *Namespace) Shut(w **Watcher) error {
	if *w != nil {
		(*w).Close()
		*w = nil
	}
	n.NL.Close()
	if n.IsHome() {
		return nil
	}
	return n.file.Close()
}

// Present returns a function that tells whether a device exists in the namespace, by its index. If the devices cannot
// be listed, every device counts as there.
func (n *Namespace) Present() (there func(index int) bool, err error) {
	links, err := List(n.NL.LinkList)
	indices := map[int]bool{}
	for _, l := range links {
		indices[l.Attrs().Index] = true
	}
	return func(index int) bool { return err != nil || indices[index] }, err
}

// Within runs f on a thread in the namespace.
func (n *Namespace) Within(f func() error) error {
	if n.IsHome() {
		return f()
	}
	return netnamespace.Within(n.Path(), f)
}

// Path returns a path of a namespace other than the daemon's own.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/self/fd/%d", n.FD()) }

// FD returns the file descriptor of a namespace other than the daemon's own.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Watch calls look after each change of a device in the namespace, until the watcher is closed.
func (n *Namespace) Watch(look func()) (w *Watcher, err error) {
	err = n.Within(func() (err error) {
		w, err = Watch(look)
		return err
	})
	return w, err
}
