package pacing

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
)

// Stats implements enforce.Kernel.
func (k *Kernel) Stats() ([]enforce.NodeStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := monotonicNS()
	out := make([]enforce.NodeStats, 0, len(k.nodes))
	at := map[uint32]int{}
	for id := range k.nodes {
		var n bpf.Node
		if err := k.obj.Nodes.Lookup(id, &n); err != nil {
			return nil, fmt.Errorf("read node %d: %w", id, err)
		}
		s := enforce.NodeStats{ID: id, Parent: n.Parent}
		for _, d := range []uint32{bpf.DirectionUp, bpf.DirectionTotal} {
			var c bpf.Clock
			if err := k.obj.Clocks.Lookup(bpf.ClockKey{Node: id, Direction: d}, &c); err != nil {
				continue // no limit in this direction
			}
			// both clocks are charged with the same bytes
			s.Bytes, s.Held = max(s.Bytes, c.Bytes), max(s.Held, c.Held)
			if c.DepartNs > now {
				s.WaitNS = max(s.WaitNS, c.DepartNs-now)
			}
		}
		at[id] = len(out)
		out = append(out, s)
	}
	tasks, err := k.obj.ListTasks()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	slices.SortFunc(tasks, func(a, b bpf.TaskRecord) int {
		if a.Tgid != b.Tgid {
			return int(a.Tgid) - int(b.Tgid)
		}
		return int(a.Node) - int(b.Node)
	})
	for i, t := range tasks {
		if i > 0 && tasks[i-1] == t {
			continue // another thread of the same process
		}
		node := t.Node
		for range 8 { // the trees around count it too
			j, ok := at[node]
			if !ok {
				break
			}
			out[j].Processes++
			if k.nodes[node].Kind != bpf.KindTree {
				break
			}
			node = out[j].Parent
		}
	}
	return out, nil
}

// Sockets implements enforce.Kernel.
func (k *Kernel) Sockets() ([]enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.obj.ListSockets()
	if err != nil {
		return nil, fmt.Errorf("list sockets: %w", err)
	}
	now := monotonicNS()
	var out []enforce.SocketStats
	for _, r := range list {
		if r.Protocol == unix.IPPROTO_MPTCP {
			continue // its subflows count
		}
		s := enforce.SocketStats{
			PID: r.State.Tgid, UID: r.State.Uid, Family: uint8(r.Family),
			Local: r.Local, Remote: r.Remote, LocalPort: r.LocalPort, RemotePort: r.RemotePort,
			QueuedBytes: r.QueuedBytes, UnsentBytes: r.UnsentBytes, SocketRate: r.State.RateBytesPerSec,
		}
		for _, h := range r.State.Path {
			if n, ok := k.nodes[h.Node]; ok && n.Generation == h.Generation {
				s.Nodes = append(s.Nodes, h.Node)
			}
		}
		if len(s.Nodes) == 0 && s.SocketRate == 0 {
			continue
		}
		if s.UnsentBytes > 0 {
			if due := max(r.State.DepartNs, r.State.DueNs); due > now {
				s.WaitNS = due - now
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// Counters implements enforce.Kernel.
func (k *Kernel) Counters() (map[string]uint64, error) {
	out := map[string]uint64{}
	for i, name := range bpf.FaultNames() {
		var perCPU []uint64
		if err := k.obj.Faults.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		for _, v := range perCPU {
			out[name] += v
		}
	}
	return out, nil
}
