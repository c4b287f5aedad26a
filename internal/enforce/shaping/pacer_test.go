package shaping

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce"
)

// tcpAlone is a pacer that remembers the nodes, and a kernel without queues on top of it. No test calls its other
// methods.
type tcpAlone struct {
	pacer
	unchanged
	nodes map[uint32]enforce.NodeSpec
	fails error // of RemoveNode
}

func (f *tcpAlone) SetNode(s enforce.NodeSpec) error { f.nodes[s.ID] = s; return nil }

func (f *tcpAlone) Node(id uint32) (enforce.NodeSpec, bool) { s, known := f.nodes[id]; return s, known }

func (f *tcpAlone) RemoveNode(id uint32) error {
	if f.fails == nil {
		delete(f.nodes, id)
	}
	return f.fails
}

func (f *tcpAlone) Attached() map[string]bool     { return map[string]bool{"pace": true} }
func (f *tcpAlone) ProgramFor(name string) string { return "paces " + name }

func (f *tcpAlone) Counters() (map[string]uint64, error) { return map[string]uint64{"lost": 3}, nil }

func (f *tcpAlone) Trees(pid int) []uint32 { return []uint32{uint32(pid)} }

func withoutQueues() (*Kernel, *tcpAlone) {
	f := &tcpAlone{nodes: map[uint32]enforce.NodeSpec{}}
	return &Kernel{pacing: f, unchanged: f, backlogs: map[uint32]uint64{}}, f
}

// A limit on egress alone is pacing's until a program needs a queue. The bound of its backlog is kept for that queue.
func TestNodesWithoutQueues(t *testing.T) {
	k, tcp := withoutQueues()
	spec := enforce.NodeSpec{ID: 7, Kind: enforce.KindTree, BacklogNS: 5}
	spec.Ceilings[enforce.OwnerUser][enforce.Up].BytesPerSec = 1000
	require.NoError(t, k.SetNode(spec))
	require.Equal(t, map[uint32]enforce.NodeSpec{7: spec}, tcp.nodes)
	require.Equal(t, map[uint32]uint64{7: 5}, k.backlogs)

	tcp.fails = errors.New("no")
	require.ErrorIs(t, k.RemoveNode(7), tcp.fails)
	require.Equal(t, map[uint32]uint64{7: 5}, k.backlogs, "the limit still holds")
	tcp.fails = nil
	require.NoError(t, k.RemoveNode(7))
	require.Empty(t, tcp.nodes)
	require.Empty(t, k.backlogs)
}

// Figures are those of pacing while there is no queue.
func TestFiguresWithoutQueues(t *testing.T) {
	k, _ := withoutQueues()
	require.Equal(t, map[string]bool{"pace": true}, k.Attached())
	counters, err := k.Counters()
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"lost": 3}, counters)
	queues, err := k.Queues()
	require.NoError(t, err)
	require.Empty(t, queues)
	require.Equal(t, "paces nn_x", k.ProgramFor("nn_x"))
	require.NotEqual(t, "paces shape_in", k.ProgramFor("shape_in"), "it is a program of the queues")
	require.Equal(t, []uint32{11}, k.Trees(11))
}
