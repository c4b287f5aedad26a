package shaping

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

// namespace is a network namespace that is entered. What is held of it, a file and
// sockets, keeps it alive after its last process.
type namespace struct {
	ns    uint32   // inode number
	file  *os.File // nil: the daemon's own
	nl    *netlink.Handle
	owner uint32 // the user who made it, in a user namespace of theirs; 0: root did
}

// openNamespace opens another namespace than the daemon's; nil without an error if
// it has gone, or is not that of the path any more. Of one owner only so many are opened, as
// with many one user would have all devices and slots; of says how many are already.
func openNamespace(ns uint32, path string, of func(owner uint32) int) (*namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // its last process has ended
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("look at network namespace %d: %w", ns, err), file.Close())
	}
	if uint32(st.Ino) != ns {
		return nil, file.Close() // the process has gone on to another
	}
	owner, err := ownerOf(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look whose network namespace %d is: %w", ns, err), file.Close())
	}
	if owner != 0 && of(owner) >= enforce.MostNamespaces {
		return nil, errors.Join(fmt.Errorf("%w: network namespaces of uid %d", errTooMany, owner), file.Close())
	}
	n := &namespace{ns: ns, file: file, owner: owner}
	if n.nl, err = netlink.NewHandleAt(netns.NsHandle(file.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in network namespace %d: %w", ns, err), file.Close())
	}
	return n, nil
}

// ownerOf is the user who has made a network namespace in a user namespace of theirs: who
// made the outermost of those around it. 0 is root.
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
	for range 34 { // the kernel allows 32 in each other
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
			break // not one that we are in
		}
		_ = unix.Close(fd)
		fd = outer
	}
	return owner, unix.Close(fd)
}

func (n *namespace) isHome() bool { return n.file == nil }

// shut ends what was opened to look at it.
func (n *namespace) shut(w **watcher) error {
	if *w != nil {
		(*w).close()
		*w = nil
	}
	n.nl.Close()
	if n.isHome() {
		return nil
	}
	return n.file.Close()
}

// present are the devices that are there, by their index.
func (n *namespace) present() (map[int]bool, error) {
	links, err := dump(n.nl.LinkList)
	there := map[int]bool{}
	for _, l := range links {
		there[l.Attrs().Index] = true
	}
	return there, err
}

// within runs f on a thread in the namespace.
func (n *namespace) within(f func() error) error {
	if n.isHome() {
		return f()
	}
	return netnamespace.Within(fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()), f)
}
