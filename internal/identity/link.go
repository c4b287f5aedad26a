package identity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
)

// loopbackIndex is the index of lo in every network namespace.
const loopbackIndex = 1

// link resolves a network device by its name in the daemon's network namespace, or, as
// NAME@INODE, in the namespace of this inode number.
func (r *Resolver) link(id string) (Resolved, error) {
	s := api.Subject{Kind: api.KindLink, ID: id}
	home, err := netnamespace.Of("self")
	if err != nil {
		return Resolved{}, err
	}
	name, ns, err := linkName(id)
	if err != nil {
		return Resolved{}, badSubject(s, err.Error(), "ip link")
	}
	if ns == home || ns == 0 {
		ns, s.ID = home, name
	}
	l, err := linkIn(name, ns, ns == home)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return Resolved{}, notFound(fmt.Sprintf("there is no network device %s", name), "ip link")
	case err != nil:
		return Resolved{}, fmt.Errorf("look for network device %s: %w", name, err)
	}
	a := l.Attrs()
	if a.Index == loopbackIndex {
		return Resolved{}, badSubject(s, "lo carries what the machine sends to itself", "netnice set SUBJECT --loopback limits that, too")
	}
	if isPort(l) {
		return Resolved{}, badSubject(s, "it is a port of another device, which has the addresses", "ip link: name its master")
	}
	return Resolved{
		Subject: s, Kind: enforce.KindLink, Name: name,
		Key: enforce.LinkSubject(ns, uint32(a.Index)),
	}, nil
}

// isPort reports whether the device is a member of a bridge or the like. The machine routes no packet of its
// own to such a device.
func isPort(l netlink.Link) bool {
	a := l.Attrs()
	return a.MasterIndex != 0 && (a.Slave == nil || a.Slave.SlaveType() != "vrf")
}

// linkName splits NAME or NAME@INODE.
func linkName(id string) (name string, ns uint32, err error) {
	name, inode, apart := strings.Cut(id, "@")
	if apart {
		n, err := strconv.ParseUint(inode, 10, 32)
		if err != nil || n == 0 {
			return "", 0, errors.New("after the @ stands the inode number of a network namespace")
		}
		ns = uint32(n)
	}
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t\n") {
		return "", 0, errors.New("a network device's name has 1 to 15 characters")
	}
	return name, ns, nil
}

func linkIn(name string, ns uint32, home bool) (netlink.Link, error) {
	if home {
		return netlink.LinkByName(name)
	}
	path := netnamespace.PathOf(ns)
	if path == "" {
		return nil, netlink.LinkNotFoundError{}
	}
	var l netlink.Link
	err := netnamespace.Within(path, func() (err error) {
		l, err = netlink.LinkByName(name)
		return err
	})
	if err == nil && l == nil { // the namespace has gone meanwhile
		err = netlink.LinkNotFoundError{}
	}
	return l, err
}

// linkID leaves out the daemon's own network namespace.
func linkID(id string) string {
	name, ns, err := linkName(id)
	if home, homeErr := netnamespace.Of("self"); err == nil && homeErr == nil && ns == home {
		return name
	}
	return id
}

// LinkGone reports whether a link is one of a network namespace that has gone.
func LinkGone(s api.Subject) bool {
	_, ns, err := linkName(s.ID)
	return err != nil || ns != 0 && netnamespace.PathOf(ns) == ""
}

// StrangeLink returns the subject of a link by its key, for a limit in force whose link is in no state file.
func (r *Resolver) StrangeLink(key uint64) Resolved {
	ns, index := enforce.LinkOf(key)
	res := Resolved{Kind: enforce.KindLink, Key: key, Name: "(gone)"}
	id := strconv.Itoa(int(index))
	if path := netnamespace.PathOf(ns); path != "" {
		_ = netnamespace.Within(path, func() error {
			l, err := netlink.LinkByIndex(int(index))
			if err == nil {
				id, res.Name = l.Attrs().Name, l.Attrs().Name
			}
			return err
		})
	}
	if home, err := netnamespace.Of("self"); err != nil || home != ns {
		id += "@" + strconv.Itoa(int(ns))
	}
	res.Subject = api.Subject{Kind: api.KindLink, ID: id}
	return res
}
