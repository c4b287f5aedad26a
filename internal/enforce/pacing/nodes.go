package pacing

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// SetNode implements enforce.Nodes.
func (k *Kernel) SetNode(spec enforce.NodeSpec) error {
	if spec.ID == 0 || spec.ID >= bpf.MaxNodes {
		return fmt.Errorf("node %d: want 1..%d", spec.ID, bpf.MaxNodes-1)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old, exists := k.nodes[spec.ID]
	if exists && (old.Kind != uint32(spec.Kind) || old.Subject != spec.Subject && old.Flags&bpf.NodeStored == 0) {
		return fmt.Errorf("node %d stands for another subject", spec.ID)
	}
	n := nodeOf(spec)
	if exists {
		if n.Kind != bpf.KindDestination { // the Parent of a destination comes from the spec
			n.Parent = old.Parent
		}
		n.Generation, n.StartBoottimeNs = old.Generation, old.StartBoottimeNs
		n.StaticSockets = old.StaticSockets
		defer k.changedLimits()
		if err := k.putNode(spec.ID, n); err != nil || n.Dscp == old.Dscp {
			return err
		}
		return k.remark(spec.ID)
	}
	var before bpf.Node
	if err := k.obj.Nodes.Lookup(spec.ID, &before); err != nil {
		return fmt.Errorf("read node %d: %w", spec.ID, err)
	}
	n.Generation = before.Generation + 1
	switch {
	case n.Kind == bpf.KindTree && n.Subject != 0:
		n.Parent = k.treeOf(uint32(spec.Subject))
	case n.Kind == bpf.KindTree:
		n.Parent = spec.Parent
	}
	if outer, ok := k.formerOuter(spec.ID, n); ok && n.Subject != 0 {
		n.Parent = outer
	}
	if err := k.create(spec.ID, n); err != nil {
		return errors.Join(err, k.remove(spec.ID))
	}
	return nil
}

// remark makes sockets look up their DSCP again.
func (k *Kernel) remark(id uint32) error {
	if err := k.putPolicy(); err != nil {
		return err
	}
	var members []uint32 // for a tree only; for other kinds all files are visited
	if k.nodes[id].Kind == bpf.KindTree {
		var err error
		if members, err = k.members(id); err != nil {
			return err
		}
	}
	return k.adoptFiles(members)
}

// create brings a node into force and makes running processes and open sockets obey it.
func (k *Kernel) create(id uint32, n bpf.Node) error {
	if err := k.putNode(id, n); err != nil {
		return err
	}
	if err := k.index(id, n, true); err != nil {
		return err
	}
	if n.Kind == bpf.KindSocket {
		return k.writePolicy() // the base hooks and the egress hook suffice
	}
	if err := k.obj.Attach(false); err != nil {
		return err
	}
	switch n.Kind {
	case bpf.KindDestination: // SetDestinations says where it holds
		if err := k.coverNode(n, nil); err != nil {
			return err
		}
		return errors.Join(k.writePolicy(), k.store(id, n))
	case bpf.KindTree:
		roots := k.formerMembers(id, n)
		if len(roots) == 0 && n.Subject == 0 {
			return k.putPolicy() // no process has joined yet
		}
		if len(roots) == 0 {
			roots = []uint32{uint32(n.Subject)}
		}
		return k.enlist(id, n, roots...)
	}
	if err := k.coverNode(n, nil); err != nil {
		return err
	}
	if err := k.putPolicy(); err != nil {
		return err
	}
	if err := k.adoptFiles(nil); err != nil {
		return err
	}
	return k.adoptConnections(n.Kind == bpf.KindHost || n.Kind == bpf.KindLink)
}

// enlist makes processes and their descendants members of a tree. It also makes their open sockets obey.
func (k *Kernel) enlist(id uint32, n bpf.Node, roots ...uint32) error {
	// The members are marked before the epoch changes. Otherwise a path that a sender makes in between would pass
	// for one of the new epoch.
	adopted, err := k.mark(id, n.Parent, roots)
	if err != nil {
		return err
	}
	members := adopted.Members
	if adopted.Nests {
		if err := k.readParents(); err != nil {
			return err
		}
	}
	if n.Subject != 0 { // with Subject 0 its processes join one by one
		if err := k.tooDeep(id, adopted.Nests); err != nil {
			return err
		}
	}
	if adopted.Nests || members == nil {
		if members, err = k.members(id); err != nil {
			return err
		}
		k.processes[id] = len(members)
	} else {
		k.processes[id] += len(members)
	}
	if err := k.coverNode(n, adopted.Cgroups); err != nil {
		return err
	}
	if err := k.putPolicy(); err != nil {
		return err
	}
	if err := k.adoptFiles(members); err != nil {
		return err
	}
	// Only the node's own connections have changed. Most new limits find none.
	list, err := k.obj.ListSocketsOf(id)
	if err != nil {
		return fmt.Errorf("list sockets of node %d: %w", id, err)
	}
	if err := k.coverStrays(list); err != nil {
		return err
	}
	if !slices.ContainsFunc(list, k.needsVisit) {
		return nil
	}
	// The connections are most likely in the network namespace of the first root.
	k.nearby = fmt.Sprintf("/proc/%d/ns/net", roots[0])
	defer func() { k.nearby = "" }()
	// The number of sharers of an outer limit is counted at the next tick.
	if err := k.dropFixed(list); err != nil {
		return err
	}
	if err := k.putStatics(map[uint32]uint32{id: busyAt(list)[id]}); err != nil {
		return err
	}
	return k.visit(k.toVisit(list))
}

// readParents reads from the kernel the trees to which an iterator gave another parent.
func (k *Kernel) readParents() error {
	for id, n := range k.nodes {
		if n.Kind != bpf.KindTree {
			continue
		}
		var now bpf.Node
		if err := k.obj.Nodes.Lookup(id, &now); err != nil {
			return fmt.Errorf("read node %d: %w", id, err)
		}
		n.Parent = now.Parent
		k.nodes[id] = n
	}
	return nil
}

// members lists the thread groups in a tree, including those of nested trees.
func (k *Kernel) members(id uint32) ([]uint32, error) {
	tasks, err := k.obj.ListTasks()
	if err != nil {
		return nil, fmt.Errorf("list the processes of node %d: %w", id, err)
	}
	inside := map[uint32]bool{}
	for _, t := range tasks {
		at := t.Node
		for range bpf.TreesDeep {
			if at == id {
				inside[t.Tgid] = true
			}
			n, ok := k.nodes[at]
			if !ok {
				break
			}
			at = n.Parent
		}
	}
	out := make([]uint32, 0, len(inside))
	for tgid := range inside {
		out = append(out, tgid)
	}
	return out, nil
}

// putNode writes a node and makes the clocks that it needs.
func (k *Kernel) putNode(id uint32, n bpf.Node) error {
	for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
		if n.Limits[0][d].CeilingBytesPerSec == 0 && n.Limits[1][d].CeilingBytesPerSec == 0 {
			continue
		}
		clock := bpf.Clock{TimeNs: bpf.NowNS(), Vtime: virtualTimeOf(n.Generation)}
		key := bpf.ClockKey{Node: id, Direction: d}
		delete(k.noClock, key)
		err := k.obj.Clocks.Update(key, &clock, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("make the clock of node %d: %w", id, err)
		}
	}
	if err := k.obj.Nodes.Put(id, &n); err != nil {
		return fmt.Errorf("write node %d: %w", id, err)
	}
	k.nodes[id] = n
	return nil
}

// index enters a node into the map that leads to it, or takes it out.
func (k *Kernel) index(id uint32, n bpf.Node, enter bool) error {
	var m *ebpf.Map
	var key, value any
	value = id
	switch n.Kind {
	case bpf.KindSocket:
		m, key, value = k.obj.SocketNodes, n.Subject, bpf.Hop{Node: id, Generation: n.Generation}
	case bpf.KindUser:
		m, key = k.obj.Users, uint32(n.Subject)
	case bpf.KindCgroup:
		m, key = k.obj.Cgroups, n.Subject
	case bpf.KindLink:
		netns, ifindex := enforce.LinkOf(n.Subject)
		m, key = k.obj.Links, bpf.LinkKey{Netns: netns, Ifindex: ifindex}
	default:
		return nil
	}
	var err error
	if enter {
		err = m.Put(key, value)
	} else if err = m.Delete(key); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("index node %d: %w", id, err)
	}
	return nil
}

// putPolicy tells the datapath which kinds of node exist. It begins a new epoch, so each socket makes a new path at
// its next use.
func (k *Kernel) putPolicy() error {
	k.epoch++
	return k.writePolicy()
}

func (k *Kernel) writePolicy() error {
	p := bpf.Policy{Epoch: k.epoch, Cover: k.cover.id, Queues: k.datagrams.epoch, Subordinates: k.subordinates, Daemon: 1}
	if k.leaving {
		p.Daemon = 0
	}
	for id, n := range k.nodes {
		if n.Kind == bpf.KindDestination {
			if receives(n) {
				p.Destinations |= bpf.DestinationsDown
			}
			continue // it concerns only processes in a tree, unless one of the following holds
		}
		p.Kinds |= 1 << n.Kind
		if n.Dscp != 0 {
			p.Marks = 1
		}
		if n.Kind == bpf.KindHost {
			p.HostNode = id
		}
	}
	if len(k.to.uses) > 0 {
		p.Destinations |= bpf.DestinationsAny
	}
	if k.to.everybody() {
		p.Kinds |= 1 << bpf.KindDestination
		if k.to.user { // the datapath needs the user of each process
			p.Kinds |= 1 << bpf.KindUser
		}
	}
	if k.rates {
		p.Kinds |= 1 << bpf.KindSocket
	}
	if err := k.obj.Policy.Put(uint32(0), &p); err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	return nil
}

// receives reports whether a node limits ingress.
func receives(n bpf.Node) bool {
	for _, owner := range n.Limits {
		if owner[enforce.Down].CeilingBytesPerSec != 0 || owner[enforce.Total].CeilingBytesPerSec != 0 {
			return true
		}
	}
	return false
}
