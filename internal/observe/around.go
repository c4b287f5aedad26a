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
	e := enclosing{s: s, list: list}
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
	if res.Kind == enforce.KindTree {
		e.add(s.nodesWith(indexKey{kind: keyUser, number: uint64(res.UID)})...)
	}
	e.add(s.nodesWith(indexKey{kind: keyHost})...)
	for _, outer := range slices.Clone(e.list) {
		e.add(s.nodesWith(indexKey{kind: keyUnder, number: uint64(outer.ID)})...)
	}
	for _, n := range s.nodesWith(indexKey{kind: keyLink}) {
		if ns, _ := enforce.LinkOf(n.Key); there == 0 || ns == there {
			e.add(n)
		}
	}
	return e.list
}

// enclosing collects the nodes that enclose a subject.
type enclosing struct {
	s    *Snapshot
	list []*Node
}

// add appends nodes that are not in the list yet. A nil node is none.
func (e *enclosing) add(nodes ...*Node) {
	for _, n := range nodes {
		if n != nil && !slices.Contains(e.list, n) {
			e.list = append(e.list, n)
		}
	}
}

// addTrees appends the trees that a process is in, and the limits on destinations that hold for it. Only the kernel
// knows all forks, since parents may have ended. The trees of the process's sockets therefore come first, then those of
// the living parents.
func (o *Observer) addTrees(e *enclosing, pid int, uid uint32, now Sample) {
	for _, id := range o.kernel.Trees(pid) {
		e.add(e.s.Node(id))
	}
	known := make(map[uint32]bool) // most sockets of a program have the same nodes
	for _, s := range now.Sockets {
		if int(s.PID) != pid {
			continue
		}
		for _, id := range s.Nodes {
			if n := e.s.Node(id); n != nil && n.Kind == enforce.KindTree && !known[id] {
				known[id] = true
				e.add(n)
			}
		}
	}
	for _, tree := range slices.Clone(e.list) {
		id := uint64(tree.ID)
		for _, n := range e.s.nodesWith(indexKey{kind: keyUnder, number: id}, indexKey{kind: keyRule}, indexKey{kind: keyRule, number: id}) {
			if n.Concerns(tree) {
				e.add(n)
			}
		}
	}
	for _, n := range e.s.nodesWith(indexKey{kind: keyEverybody}) {
		if n.concernsUser(uid) {
			e.add(n)
		}
	}
	for _, a := range o.resolver.Ancestors(pid) {
		for _, n := range e.s.nodesWith(indexKey{kind: keyTree, number: uint64(a.PID)}) {
			if identity.SameStart(n.StartBoottimeNS, a.StartBoottimeNS) {
				e.add(n)
			}
		}
	}
}

// addCgroups appends the nodes on a cgroup and on those that enclose it, innermost first.
func (e *enclosing) addCgroups(cgroup string) {
	for end := len(cgroup); end > 0; end = strings.LastIndexByte(cgroup[:end], '/') {
		e.add(e.s.nodesWith(indexKey{kind: keyCgroup, folder: cgroup[:end]})...)
	}
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
