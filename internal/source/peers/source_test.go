package peers

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
)

// memory is a Host and a Kernel that keep everything in memory.
type memory struct {
	*Source
	limits []Limit
	peers  map[uint32]*peer
	met    map[uint32][]enforce.Peer // by the limit
	kernel map[uint32]enforce.NodeSpec
	others []string // the subjects that have a limit of their own
	bytes  map[uint32]uint64
	lastID uint32
	now    time.Time
	fails  error // why the kernel refuses to set a node
}

type peer struct {
	Peer
	part string
}

func newMemory(t *testing.T, limits ...Limit) *memory {
	m := &memory{
		peers: map[uint32]*peer{}, met: map[uint32][]enforce.Peer{}, kernel: map[uint32]enforce.NodeSpec{}, bytes: map[uint32]uint64{},
		lastID: 100, now: time.Unix(1e9, 0), limits: limits,
	}
	m.Source = New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kernel: memoryKernel{m}, Host: m, Figures: m.figures,
		Now: func() time.Time { return m.now },
	})
	return m
}

func (m *memory) figures() (observe.Sample, error) {
	now := observe.Sample{Nodes: map[uint32]enforce.NodeStats{}}
	for id := range m.peers {
		stats := enforce.NodeStats{ID: id}
		stats.Down.Bytes = m.bytes[id]
		now.Nodes[id] = stats
	}
	return now, nil
}

func (m *memory) Update(change func() error) error { return change() }

func (m *memory) Limits(yield func(Limit) bool) {
	for _, of := range m.limits {
		if !yield(of) {
			return
		}
	}
}

func (m *memory) Peers(yield func(Peer) bool) {
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		if p, ok := m.peers[id]; ok && !yield(p.Peer) {
			return
		}
	}
}

func (m *memory) IsLimited(_ uint32, part destination.Selector) bool {
	for _, p := range m.peers {
		if p.part == part.String() {
			return true
		}
	}
	return slices.Contains(m.others, part.String())
}

func (m *memory) Add(of uint32, part destination.Selector, id uint32) (uint32, error) {
	if m.fails != nil {
		return 0, m.fails
	}
	if id == 0 {
		id = m.FreeID()
	}
	i := slices.IndexFunc(m.limits, func(l Limit) bool { return l.ID == of })
	m.peers[id] = &peer{Peer{ID: id, Of: of, Request: m.limits[i].Request}, part.String()}
	m.kernel[id] = enforce.NodeSpec{ID: id}
	return id, nil
}

func (m *memory) Change(node uint32, is limit.Limit) error {
	m.peers[node].Request = is
	return nil
}

func (m *memory) End(node uint32) error {
	delete(m.peers, node)
	delete(m.kernel, node)
	return nil
}

func (m *memory) FreeID() uint32 {
	m.lastID++
	return m.lastID
}

func (m *memory) Count() int { return len(m.peers) + len(m.limits) }

func (m *memory) CountsAs(uid uint32) uint32 { return uid / 10 }

// memoryKernel has methods with the names of those of the host.
type memoryKernel struct{ *memory }

func (m memoryKernel) Peers(id uint32) ([]enforce.Peer, error) { return slices.Clone(m.met[id]), nil }

func (m memoryKernel) SetNode(spec enforce.NodeSpec) error {
	if m.fails == nil {
		m.kernel[spec.ID] = spec
	}
	return m.fails
}

func (m memoryKernel) RemoveNode(id uint32) error {
	delete(m.kernel, id)
	return nil
}

// each is a limit for each address of IPv4.
func each(t *testing.T, id uint32, up uint64) Limit {
	t.Helper()
	selector, _, err := destination.Parse("0.0.0.0/0/each")
	require.NoError(t, err)
	return Limit{
		ID: id, Subject: api.Subject{Kind: api.KindTo, ID: "0.0.0.0/0/each"}, Selector: selector,
		Request: limit.Limit{Up: up}, Stored: enforce.NodeSpec{Kind: enforce.KindDestination, Store: id, Weight: uint32(up)},
	}
}

// passes makes passes until nothing is left to be done.
func (m *memory) passes(t *testing.T) (isBusy bool) {
	t.Helper()
	for range 100 {
		isBusy, err := m.pass()
		require.NoError(t, err)
		select {
		case <-m.wake:
		default:
			return isBusy
		}
	}
	require.Fail(t, "it never ends")
	return false
}

func address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
}

// parts lists what peers have limits on.
func (m *memory) parts() (list []string) {
	for _, p := range m.peers {
		list = append(list, fmt.Sprintf("%s %d", p.part, p.Request.Up))
	}
	slices.Sort(list)
	return list
}

// pooled counts the preallocated nodes of each limit, in the kernel and here.
func (m *memory) pooled(t *testing.T) map[uint32]int {
	t.Helper()
	count := map[uint32]int{}
	for id, spec := range m.kernel {
		if spec.Store != 0 {
			require.Equal(t, spec, m.pool[id])
			count[spec.Store]++
		}
	}
	return count
}

// Each address that was met has the limit by itself, unless its owner has set another one there. A changed request
// changes all of them, and they end with the limit.
func TestPeers(t *testing.T) {
	m := newMemory(t)
	require.False(t, m.passes(t), "there is nothing to do")
	m.limits = []Limit{each(t, 1, 5)}
	m.met[1] = []enforce.Peer{{Address: address(1)}, {Address: address(2)}, {Address: address(2)}, {Address: netip.IPv4Unspecified()}}
	m.others = []string{"10.0.0.2"}
	require.True(t, m.passes(t))
	require.Equal(t, []string{"10.0.0.1 5"}, m.parts())
	require.Equal(t, map[uint32]int{1: poolOfAdmin}, m.pooled(t))

	m.limits[0] = each(t, 1, 6)
	m.passes(t)
	require.Equal(t, []string{"10.0.0.1 6"}, m.parts())
	for _, spec := range m.pool {
		require.EqualValues(t, 6, spec.Weight, "as the next address gets it")
	}

	m.limits = nil
	m.passes(t)
	require.Empty(t, m.parts())
	require.Empty(t, m.kernel)
	require.False(t, m.passes(t))
}

// The node that the kernel side has given to an address is that address's. One that an address without a need for it has
// been given goes.
func TestPooledNodeIsTaken(t *testing.T) {
	m := newMemory(t, each(t, 1, 5))
	m.passes(t)
	ids := slices.Sorted(maps.Keys(m.pool))
	m.others = []string{"10.0.0.2"}
	m.met[1] = []enforce.Peer{{Address: address(1)}, {Address: address(1), Node: ids[3]}, {Address: address(2), Node: ids[4]}, {Address: address(3), Node: 77}}
	m.passes(t)
	require.Equal(t, []string{"10.0.0.1 5", "10.0.0.3 5"}, m.parts())
	require.Contains(t, m.peers, ids[3])
	require.NotContains(t, m.peers, uint32(77), "it is not in the pool")
	require.NotContains(t, m.kernel, ids[4])
	require.Equal(t, map[uint32]int{1: poolOfAdmin}, m.pooled(t), "others take their places")

	next := newMemory(t, each(t, 1, 5))
	for id, spec := range m.pool {
		next.Adopt(spec)
		next.kernel[id] = spec
	}
	next.lastID = m.lastID
	lost := slices.Max(slices.Collect(maps.Keys(m.pool)))
	delete(next.kernel, lost)
	next.Lost(func(id uint32) bool { return id != lost })
	next.passes(t)
	require.Equal(t, map[uint32]int{1: poolOfAdmin}, next.pooled(t))
	require.Equal(t, m.lastID+1, next.lastID, "only the lost one was made")

	m.fails = errors.New("full")
	m.met[1] = append(m.met[1], enforce.Peer{Address: address(4), Node: slices.Sorted(maps.Keys(m.pool))[0]})
	_, err := m.pass()
	require.ErrorIs(t, err, m.fails)
	require.Equal(t, map[uint32]int{1: poolOfAdmin}, m.pooled(t))
}

// A node ends a minute after the last byte.
func TestIdlePeers(t *testing.T) {
	m := newMemory(t, each(t, 1, 5))
	m.met[1] = []enforce.Peer{{Address: address(1)}}
	m.passes(t)
	m.met[1] = nil
	for range 3 {
		m.now = m.now.Add(idleTime)
		for id := range m.peers {
			m.bytes[id]++
		}
		m.passes(t)
		require.Len(t, m.peers, 1)
	}
	m.now = m.now.Add(idleTime)
	m.passes(t)
	require.Len(t, m.peers, 1)
	m.now = m.now.Add(1)
	m.passes(t)
	require.Empty(t, m.peers)
	require.Empty(t, m.used)
}

// Each pass makes a part of many nodes, and others have the lock meanwhile. There is a bound for all of them.
func TestManyPeers(t *testing.T) {
	m := newMemory(t, each(t, 1, 5))
	for n := range mostPeers + 1 {
		m.met[1] = append(m.met[1], enforce.Peer{Address: address(n + 1)})
	}
	_, err := m.pass()
	require.NoError(t, err)
	require.Len(t, m.peers, peersAtOnce)
	for err == nil {
		_, err = m.pass()
	}
	require.ErrorContains(t, err, "as many addresses are met limits already")
	require.Len(t, m.peers, mostPeers)
}

// A user's limits have few preallocated nodes, and those of all users together leave some for others.
func TestPoolOfUsers(t *testing.T) {
	m := newMemory(t)
	for id := range uint32(6) {
		of := each(t, id+1, 5)
		of.OnlyUser, of.User = true, 20+id%2 // they count as one
		m.limits = append(m.limits, of)
	}
	other := each(t, 7, 5)
	other.OnlyUser, other.User = true, 30
	m.limits = append(m.limits, other, each(t, 8, 5))
	m.passes(t)
	sizes := slices.Sorted(maps.Values(m.pooled(t)))
	require.Equal(t, []int{poolOfUser, poolOfUser, poolOfUser, poolOfUser, poolOfUser, poolOfAdmin}, sizes)
}
