package observe

import (
	"path"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// enclosures finds the node that encloses another where the kernel side names none, because it nests only trees. It is
// the first one of cgroup, user and host.
type enclosures struct {
	resolver *identity.Resolver
	mount    string
	cgroups  map[string]uint32 // by folder
	users    map[uint32]uint32
	host     uint32
}

// enclosures returns those of a snapshot.
func (s *Snapshot) enclosures(resolver *identity.Resolver) *enclosures {
	return s.enclosing.get(func() *enclosures {
		e := &enclosures{resolver: resolver, cgroups: make(map[string]uint32), users: make(map[uint32]uint32)}
		for _, part := range s.nodes {
			for id, n := range part {
				switch {
				case n.Kind == enforce.KindHost:
					e.host = id
				case n.Kind == enforce.KindUser:
					e.users[n.UID] = id
				case n.Kind == enforce.KindCgroup && n.Dir != "":
					e.cgroups[n.Dir] = id
				}
			}
		}
		if len(e.cgroups) > 0 {
			if mount, err := resolver.CgroupRoot(); err == nil {
				e.mount = mount
			}
		}
		return e
	})
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
		if id := e.users[n.UID]; id != 0 {
			return id
		}
	}
	return e.host
}

// around returns the innermost cgroup node that contains a folder.
func (e *enclosures) around(dir string) uint32 {
	for ; len(dir) > len(e.mount) && e.mount != ""; dir = path.Dir(dir) {
		if id := e.cgroups[dir]; id != 0 {
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
		if is(e.cgroups[dir]) {
			return true
		}
	}
	return false
}
