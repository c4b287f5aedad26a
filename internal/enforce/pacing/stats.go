package pacing

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Stats implements enforce.Figures.
func (k *Kernel) Stats() ([]enforce.NodeStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]enforce.NodeStats, 0, len(k.nodes))
	at := map[uint32]int{}
	wide := sync.OnceValue(func() []uint32 { return wideNodes(k.nodes) })
	for id := range k.nodes {
		s, err := k.counters(id, wide)
		if err != nil {
			return nil, err
		}
		at[id] = len(out)
		out = append(out, s)
	}
	tasks, err := k.obj.ListTasks()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	slices.SortFunc(tasks, func(a, b bpf.TaskRecord) int { return int(a.Tgid) - int(b.Tgid) })
	counted := map[uint32]bool{} // nodes that already count the present process
	for i, t := range tasks {
		if i > 0 && tasks[i-1].Tgid != t.Tgid {
			clear(counted)
		}
		node := t.Node
		for range bpf.TreesDeep { // the enclosing trees count it too
			j, ok := at[node]
			if !ok {
				break
			}
			if !counted[node] { // the threads of one process may be in several trees
				counted[node] = true
				out[j].Processes++
			}
			if k.nodes[node].Kind != bpf.KindTree {
				break
			}
			node = out[j].Parent
		}
	}
	clear(k.processes)
	for _, s := range out {
		k.processes[s.ID] = s.Processes
	}
	return out, nil
}

// counters reads the kernel's figures of one node, except its processes. wide returns the wide nodes.
func (k *Kernel) counters(id uint32, wide func() []uint32) (enforce.NodeStats, error) {
	var n bpf.Node
	if err := k.obj.Nodes.Lookup(id, &n); err != nil {
		return enforce.NodeStats{}, fmt.Errorf("read node %d: %w", id, err)
	}
	s := enforce.NodeStats{ID: id, Parent: n.Parent}
	now := bpf.NowNS()
	for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
		key := bpf.ClockKey{Node: id, Direction: d}
		if k.noClock[key] {
			continue
		}
		var c bpf.Clock
		if err := k.obj.Clocks.Lookup(key, &c); err != nil {
			k.noClock[key] = errors.Is(err, ebpf.ErrKeyNotExist)
			continue // the node has no limit in this direction
		}
		charge(&s, d, c)
		s.Datagrams.Dropped.NoQueue += c.Dropped
		if c.DepartNs > now {
			s.WaitNS = max(s.WaitNS, c.DepartNs-now)
		}
	}
	if !limitsSending(n) {
		s.Bytes = k.asChild(id, n, wide)
	}
	return s, nil
}

// charge adds the figures of the clock of one direction. Both clocks of a node are charged for the same sent bytes.
// The clock of a total is also charged for received bytes, which are no part of the sent bytes.
func charge(s *enforce.NodeStats, direction uint32, c bpf.Clock) {
	s.Bytes, s.Held = max(s.Bytes, c.SentBytes), max(s.Held, c.Held)
	if direction == bpf.DirectionTotal {
		s.TotalBytes = c.Bytes
	}
}

// limitsSending reports whether a node has a limit on egress.
func limitsSending(n bpf.Node) bool {
	for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
		if rate, _ := holding(n, d); rate != 0 {
			return true
		}
	}
	return false
}

// mostAround is the largest number of wide nodes that asChild searches for the ones around a node that is not a tree.
const mostAround = 16

// asChild returns the bytes that a node without a limit was charged as a child of other nodes. Such a node is a
// member of a group, or it has a guarantee or a weight. If several limits are around it, the one with the highest
// count wins.
func (k *Kernel) asChild(id uint32, n bpf.Node, wide func() []uint32) (most uint64) {
	look := func(outer uint32) {
		for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
			if k.noClock[bpf.ClockKey{Node: outer, Direction: d}] {
				continue
			}
			sum := uint64(0)
			for _, apart := range []uint64{0, bpf.ChildDatagrams} {
				var class bpf.Class
				key := bpf.ClassKey{Node: outer, Direction: d, Child: childOfNode(id, n.Generation) | apart}
				if k.obj.Classes.Lookup(key, &class) == nil { // without a class it has sent nothing
					sum += class.Bytes
				}
			}
			most = max(most, sum)
		}
	}
	for at, deep := n.Parent, 0; at != 0 && deep < bpf.TreesDeep; deep++ {
		look(at)
		at = k.nodes[at].Parent
	}
	if most != 0 || n.Weight == enforce.DefaultWeight && n.Limits[enforce.OwnerAdmin][enforce.Up].MinBytesPerSec == 0 {
		return most
	}
	looked := 0
	for _, outer := range wide() {
		if outer == id {
			continue
		}
		look(outer)
		if looked++; looked == mostAround {
			break
		}
	}
	return most
}

// wideNodes lists nodes with a limit on egress that may be around a node without being its parent. The list has as
// many as asChild searches for one node, and one more. Finding them takes a look at all nodes.
func wideNodes(nodes map[uint32]bpf.Node) (list []uint32) {
	for id, n := range nodes {
		switch n.Kind {
		case bpf.KindUser, bpf.KindCgroup, bpf.KindHost, bpf.KindLink:
			if limitsSending(n) {
				list = append(list, id)
			}
		}
		if len(list) > mostAround { // one more than asChild searches, as a node is not around itself
			break
		}
	}
	return list
}

// Unknown implements enforce.Figures.
func (k *Kernel) Unknown() (s enforce.UnknownStats, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for kind, to := range map[uint32]*enforce.Volume{
		bpf.UnknownSentSocket: &s.SentSocket,
		bpf.UnknownSentKernel: &s.SentKernel,
		bpf.UnknownCameSocket: &s.ReceivedSocket,
		bpf.UnknownCameKernel: &s.ReceivedKernel,
		bpf.UnknownCameNobody: &s.ReceivedNobody,
	} {
		var perCPU []bpf.Volume
		if err := k.obj.Unknown.Lookup(kind, &perCPU); err != nil {
			return s, fmt.Errorf("read the traffic of unknown owners: %w", err)
		}
		for _, v := range perCPU {
			to.Bytes += v.Bytes
			to.Packets += v.Packets
		}
	}
	return s, nil
}

// Look implements enforce.Figures.
func (k *Kernel) Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.counters(id, func() []uint32 { return wideNodes(k.nodes) })
	if err != nil {
		return s, nil, err
	}
	s.Processes = k.processes[id]
	list, err := k.obj.ListSocketsOf(id)
	if err != nil {
		return s, nil, fmt.Errorf("list sockets of node %d: %w", id, err)
	}
	return s, k.socketStats(streams(list)), nil
}

// SentBytes implements enforce.Paths.
func (k *Kernel) SentBytes(id uint32) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.counters(id, func() []uint32 { return wideNodes(k.nodes) })
	return s.Bytes, err
}

// Sockets implements enforce.Figures.
func (k *Kernel) Sockets() ([]enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.obj.ListSockets()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	return k.socketStats(streams(list)), nil
}

func (k *Kernel) socketStats(list []bpf.SocketRecord) (out []enforce.SocketStats) {
	for _, r := range list {
		if r.Protocol == unix.IPPROTO_MPTCP {
			continue // its subflows count instead
		}
		s := enforce.SocketStats{
			PID: r.State.Tgid, UID: r.State.Uid, Family: uint8(r.Family),
			Local: r.Local, Remote: r.Remote, LocalPort: r.LocalPort, RemotePort: r.RemotePort,
			QueuedBytes: r.QueuedBytes, UnsentBytes: r.UnsentBytes, PromisedBytes: uint64(r.PromisedBytes), SocketRate: r.State.RateBytesPerSec, ReceiveRate: r.State.ReceiveBytesPerSec,
		}
		s.Nodes = k.limitsOn(r.State)
		if len(s.Nodes) == 0 && s.SocketRate == 0 && s.ReceiveRate == 0 {
			continue
		}
		if s.UnsentBytes > 0 {
			// The wait counts from the time at which the socket was read. A socket that no process has open may
			// have been read some time ago.
			if due := max(r.State.DepartNs, r.State.DueNs); due > r.TimeNs {
				s.WaitNS = due - r.TimeNs
			}
		}
		out = append(out, s)
	}
	return out
}

// limitsOn lists the nodes on a socket's path that are still in use, innermost first, without the socket's own.
func (k *Kernel) limitsOn(s bpf.Socket) (nodes []uint32) {
	for _, h := range s.Path {
		if n, ok := k.nodes[h.Node]; ok && n.Generation == h.Generation && n.Kind != bpf.KindSocket {
			nodes = append(nodes, h.Node)
		}
	}
	return nodes
}

// Counters implements enforce.Programs.
func (k *Kernel) Counters() (map[string]uint64, error) {
	return bpf.ReadCounters(k.obj.Faults, bpf.FaultNames())
}

// streams drops datagram sockets from the list. Their backlog is counted for the node.
func streams(list []bpf.SocketRecord) []bpf.SocketRecord {
	return slices.DeleteFunc(list, func(r bpf.SocketRecord) bool { return r.Protocol == unix.IPPROTO_UDP })
}
