package shaping

import (
	"cmp"
	"maps"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/shaping/queuepair"
)

// Stats implements enforce.Figures.
func (k *Kernel) Stats() ([]enforce.NodeStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.pacing.Stats()
	if err != nil {
		return list, err
	}
	if err := k.countSent(list); err != nil || k.on == nil {
		return list, err
	}
	queues, err := k.on.pair.Standings()
	if err != nil {
		return nil, err
	}
	for i := range list {
		k.on.count(&list[i], queues)
	}
	return list, nil
}

// Look implements enforce.Figures.
func (k *Kernel) Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	stats, sockets, err := k.pacing.Look(id)
	if err == nil {
		one := []enforce.NodeStats{stats}
		err = k.countSent(one)
		stats = one[0]
	}
	if err != nil || k.on == nil || k.on.nodes[id] == nil {
		return stats, sockets, err
	}
	queues, err := k.on.pair.Standings()
	if err != nil {
		return stats, sockets, err
	}
	k.on.count(&stats, queues)
	return stats, sockets, nil
}

// count adds the ingress figures of a node.
func (s *shaper) count(stats *enforce.NodeStats, queues map[uint32]queuepair.Standing) {
	n := s.nodes[stats.ID]
	if n == nil {
		return
	}
	var f bpf.Inflow
	if s.obj.Inflows.Lookup(stats.ID, &f) != nil {
		return // it is just being made or removed
	}
	q := queues[stats.ID]
	stats.Down = enforce.InflowStats{
		Bytes: f.Bytes, QueuedBytes: uint64(q.Backlog), Dropped: enforce.Drops{QueueFull: uint64(q.Drops) + f.Refused, Ahead: f.Policed},
	}
	if n.class.rate > 0 {
		stats.Down.DelayNS = uint64(float64(q.Backlog) / float64(n.class.rate) * 1e9)
	}
}

// Attached implements enforce.Programs.
func (k *Kernel) Attached() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.pacing.Attached()
	if k.send != nil {
		maps.Copy(out, k.send.obj.Attached())
		out["send_out"], out["send_back"] = false, false
		for _, p := range k.send.places {
			out["send_out"] = out["send_out"] || len(p.attached) > 0
			out["send_back"] = out["send_back"] || p.pair.Back != nil
		}
	}
	if k.on == nil {
		return out
	}
	maps.Copy(out, k.on.obj.Attached())
	out["shape_in"], out["shape_back"], out["shape_link"] = false, k.on.pair.Back != nil, false
	for _, p := range k.on.places {
		out["shape_in"] = out["shape_in"] || len(p.attached) > 0
		out["shape_link"] = out["shape_link"] || !p.IsHome()
	}
	return out
}

// ProgramFor returns a text for people about what an attached program does.
func (k *Kernel) ProgramFor(name string) string {
	return cmp.Or(bpf.ShapingPurposes()[name], bpf.SendingPurposes()[name], k.pacing.ProgramFor(name))
}

// Counters implements enforce.Programs.
func (k *Kernel) Counters() (map[string]uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out, err := k.pacing.Counters()
	if err == nil && k.send != nil {
		var own map[string]uint64
		if own, err = bpf.ReadCounters(k.send.obj.SendFaults, bpf.SendFaultNames()); err == nil {
			maps.Copy(out, own)
			out[refusedName] += k.send.refused
			for _, p := range k.send.places {
				out[devicesRefusedName] += uint64(p.refused)
			}
		}
	}
	if err != nil || k.on == nil {
		return out, err
	}
	own, err := bpf.ReadCounters(k.on.obj.ShapeFaults, bpf.ShapeFaultNames())
	if err != nil {
		return nil, err
	}
	maps.Copy(out, own)
	out[refusedName] += k.on.refused
	for _, p := range k.on.places {
		out[devicesRefusedName] += uint64(p.refused)
	}
	return out, nil
}

// refusedName counts network namespaces without queues, as their owner has too many.
const refusedName = "namespace_refused"

// devicesRefusedName counts devices at which limits do not hold now, as there are too many devices.
const devicesRefusedName = "device_refused"

// countSent adds the backlog, the drops and the queueing delay of the nodes' non-TCP egress.
func (k *Kernel) countSent(list []enforce.NodeStats) error {
	if k.send == nil {
		return nil
	}
	for _, p := range k.send.places {
		queues, err := p.pair.Standings()
		if err != nil {
			return err
		}
		for i := range list {
			p.countSent(&list[i], queues)
		}
	}
	return nil
}

func (p *sendPlace) countSent(stats *enforce.NodeStats, queues map[uint32]queuepair.Standing) {
	o := p.outlets[stats.ID]
	if o == nil {
		return
	}
	var f bpf.Outflow
	if p.s.obj.Outflows.Lookup(p.key(stats.ID), &f) != nil {
		return // it is just being made or removed
	}
	q := o.standing(stats.ID, queues)
	stats.Datagrams.QueuedBytes += uint64(q.Backlog)
	stats.Datagrams.Dropped.QueueFull += uint64(q.Drops)
	stats.Datagrams.Dropped.Ahead += f.Dropped
	if o.class.rate > 0 {
		stats.Datagrams.DelayNS = max(stats.Datagrams.DelayNS, uint64(float64(q.Backlog)/float64(o.class.rate)*1e9))
	}
}
