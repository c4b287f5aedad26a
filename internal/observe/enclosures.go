package observe

import (
	"path"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// enclosures finds the node that encloses another where the kernel side names none, because it nests only trees. It is
// the first one of cgroup, user and host.
type enclosures struct {
	index    *nodeIndex
	resolver *identity.Resolver
	mount    string // of the cgroups, "" = no node is on one
}

// enclosures returns those of a snapshot.
func (s *Snapshot) enclosures(resolver *identity.Resolver) *enclosures {
	e := &enclosures{index: &s.index, resolver: resolver}
	if s.cgroups != 0 {
		e.mount = s.mount.get(func() string {
			mount, _ := resolver.CgroupRoot()
			return mount
		})
		if e.mount == "" { // it failed then; until it does not, no cgroup encloses another node
			e.mount, _ = resolver.CgroupRoot()
		}
	}
	return e
}

// host returns the node on the host, 0 = there is none; user and cgroup do the same for a user and a folder.
func (e *enclosures) host() uint32 { return e.index.first(indexKey{kind: keyHost}) }

func (e *enclosures) user(uid uint32) uint32 {
	return e.index.first(indexKey{kind: keyUser, number: uint64(uid)})
}

func (e *enclosures) cgroup(dir string) uint32 {
	return e.index.first(indexKey{kind: keyCgroup, folder: dir})
}

func (e *enclosures) of(n *Node) uint32 {
	switch n.Kind {
	case enforce.KindHost, enforce.KindLink:
		return 0
	case enforce.KindCgroup:
		if id := e.around(path.Dir(n.Dir)); id != 0 {
			return id
		}
	case enforce.KindTree:
		if n.Key == 0 && n.UID == 0 {
			break // it has many users
		}
		if e.mount != "" {
			if rel, err := e.resolver.ProcessCgroup(int(n.Key)); err == nil {
				if id := e.around(e.mount + rel); id != 0 {
					return id
				}
			}
		}
		if id := e.user(n.UID); id != 0 {
			return id
		}
	}
	return e.host()
}

// around returns the innermost cgroup node that contains a folder.
func (e *enclosures) around(dir string) uint32 {
	for ; len(dir) > len(e.mount) && e.mount != ""; dir = path.Dir(dir) {
		if id := e.cgroup(dir); id != 0 {
			return id
		}
	}
	return 0
}

// cgroupOf returns the folder of the cgroup that a process is in, "" if it is not known.
func (e *enclosures) cgroupOf(n *Node) string {
	if e.mount == "" {
		return ""
	}
	rel, err := e.resolver.ProcessCgroup(int(n.Key))
	if err != nil {
		return ""
	}
	return e.mount + rel
}

// anyCgroup reports whether a node on a folder, or on one that encloses it, fulfils a condition.
func (e *enclosures) anyCgroup(dir string, is func(id uint32) bool) bool {
	for ; len(dir) > len(e.mount) && e.mount != ""; dir = path.Dir(dir) {
		if is(e.cgroup(dir)) {
			return true
		}
	}
	return false
}
