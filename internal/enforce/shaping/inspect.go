package shaping

import (
	"time"

	"github.com/netnice/netnice/internal/enforce"
)

// Inspect implements enforce.Figures. To each socket it adds a turn for every node that limits the socket's ingress:
// the time that the backlog of the node's queue takes to leave.
func (k *Kernel) Inspect(wanted func(inode uint64, pid uint32) bool) ([]enforce.SocketLook, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, err := k.pacing.Inspect(wanted)
	if err != nil || k.on == nil || len(list) == 0 {
		return list, err
	}
	queues, err := k.on.pair.Standings()
	if err != nil {
		return nil, err
	}
	for i := range list {
		own := list[i].Own
		for _, id := range append([]uint32{own}, list[i].Nodes...) {
			n := k.on.nodes[id]
			if n == nil || list[i].Loopback {
				continue
			}
			turn := enforce.Turn{Node: id, Direction: enforce.Down, Burst: enforce.DefaultBurst}
			if id == own {
				turn.Node = 0
			}
			if q := queues[id]; q.Backlog > 0 && n.class.rate > 0 {
				turn.Ahead = time.Duration(float64(q.Backlog) / float64(n.class.rate) * 1e9)
			}
			list[i].Turns = append(list[i].Turns, turn)
		}
	}
	return list, nil
}
