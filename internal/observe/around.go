package observe

import (
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/netnamespace"
)

// Around appends to a list the nodes that enclose a subject, innermost first.
func (o *Observer) Around(s *Snapshot, list []*Node, res identity.Resolved, now Sample) []*Node {
	return o.aroundOf(s.All(), list, res, now)
}

// aroundOf is Around for callers that call it repeatedly: all are the nodes of the snapshot in order.
func (o *Observer) aroundOf(all, list []*Node, res identity.Resolved, now Sample) []*Node {
	e := enclosing{all: all, list: list}
	cgroup := res.Dir
	there := uint32(0)
	if res.Kind == enforce.KindTree {
		pid := int(res.Key)
		o.addTrees(&e, pid, res.UID, now)
		if root, err := o.resolver.CgroupRoot(); err == nil {
			if rel, err := o.resolver.ProcessCgroup(pid); err == nil {
				cgroup = root + rel
			}
		}
		there, _ = netnamespace.Of(strconv.Itoa(pid)) // 0 for an ended process: the links of all namespaces
	}
	if cgroup != "" {
		e.addCgroups(cgroup)
	}
	e.add(func(n *Node) bool {
		return res.Kind == enforce.KindTree && n.Kind == enforce.KindUser && n.UID == res.UID
	})
	e.add(func(n *Node) bool { return n.Kind == enforce.KindHost })
	for _, outer := range slices.Clone(e.list) {
		e.add(func(n *Node) bool { return n.isUnder(outer) })
	}
	e.add(func(n *Node) bool {
		ns, _ := enforce.LinkOf(n.Key)
		return n.Kind == enforce.KindLink && (there == 0 || ns == there)
	})
	return e.list
}

// enclosing collects the nodes that enclose a subject.
type enclosing struct {
	all, list []*Node
}

// add appends the nodes that fulfil a condition, in order.
func (e *enclosing) add(match func(*Node) bool) {
	for _, n := range e.all {
		if match(n) && !slices.Contains(e.list, n) {
			e.list = append(e.list, n)
		}
	}
}

// addTrees appends the trees that a process is in, and the limits on destinations that hold for it. Only the kernel
// knows all forks, since parents may have ended. The trees of the process's sockets therefore come first, then those of
// the living parents.
func (o *Observer) addTrees(e *enclosing, pid int, uid uint32, now Sample) {
	for _, id := range o.kernel.Trees(pid) {
		e.add(func(n *Node) bool { return n.ID == id })
	}
	known := make(map[uint32]bool) // most sockets of a program have the same nodes
	for _, s := range now.Sockets {
		if int(s.PID) != pid {
			continue
		}
		for _, id := range s.Nodes {
			if !known[id] {
				known[id] = true
				e.add(func(n *Node) bool { return n.ID == id && n.Kind == enforce.KindTree })
			}
		}
	}
	for _, tree := range slices.Clone(e.list) {
		e.add(func(n *Node) bool { return n.Concerns(tree) })
	}
	e.add(func(n *Node) bool { return n.concernsUser(uid) })
	for _, a := range o.resolver.Ancestors(pid) {
		e.add(func(n *Node) bool {
			return n.Kind == enforce.KindTree && int(n.Key) == a.PID && identity.SameStart(n.StartBoottimeNS, a.StartBoottimeNS)
		})
	}
}

// addCgroups appends the nodes on a cgroup and on those that enclose it, innermost first.
func (e *enclosing) addCgroups(cgroup string) {
	first := len(e.list)
	e.add(func(n *Node) bool {
		return n.Kind == enforce.KindCgroup && n.Dir != "" && strings.HasPrefix(cgroup+"/", n.Dir+"/")
	})
	slices.SortStableFunc(e.list[first:], func(a, b *Node) int { return len(b.Dir) - len(a.Dir) })
}

// isUnder reports whether a node is a command's limit on a part of another node's traffic.
func (n *Node) isUnder(outer *Node) bool {
	return n.To != nil && n.To.Under != 0 && n.To.Under == outer.ID
}

// Concerns reports whether a node for a destination applies to the processes of a tree. A node that is not published
// (nil) does not.
func (n *Node) Concerns(tree *Node) bool {
	if n == nil {
		return false
	}
	if n.To != nil {
		return n.isUnder(tree)
	}
	if n.Rules.Destined == 0 || uint32(n.Key) != 0 && uint32(n.Key) != tree.ID {
		return false
	}
	for owner, list := range n.Rules.Limiting {
		for _, from := range list {
			if from.IsIn(tree.Rules.Meant[owner]) {
				return true
			}
		}
	}
	return false
}

// concernsUser reports whether such a node applies to all processes of a user.
func (n *Node) concernsUser(uid uint32) bool {
	return n.isEverybodys() && (!n.Users.OnlyUser || n.Users.Owner == uid)
}
