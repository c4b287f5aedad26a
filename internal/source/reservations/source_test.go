package reservations

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/plan"
)

const (
	bob  = uint32(4242)
	eth0 = uint32(7) // the node of the link
)

// memory is a Host and a Kernel that keep everything in memory.
type memory struct {
	*Source
	nodes    []Node
	rate     uint64 // the link's limit
	sockets  []enforce.SocketReservation
	asker    enforce.SocketReservation // the socket of the next request
	ended    map[uint32]bool
	released []uint32
	fails    error
}

func newMemory(t *testing.T, nodes ...Node) *memory {
	m := &memory{rate: 10e6, nodes: nodes}
	m.Source = New(Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kernel: m, Host: m})
	for i := range m.nodes {
		m.nodes[i].Worth = m.Worth(m.nodes[i].Holding)
	}
	return m
}

func (m *memory) Nodes(yield func(Node) bool) {
	for _, n := range slices.Clone(m.nodes) {
		if !yield(n) {
			return
		}
	}
}

func (m *memory) Link(name string) Link {
	if name != "eth0" {
		return Link{}
	}
	return m.LinkOf(eth0)
}

func (m *memory) LinkOf(node uint32) Link {
	if node != eth0 {
		return Link{}
	}
	return Link{ID: eth0, Subject: api.Subject{Kind: api.KindLink, ID: "eth0"}, BytesPerSec: m.rate}
}

func (m *memory) CountsAs(uid uint32) uint32 {
	if uid == bob+1 {
		return bob
	}
	return uid
}

func (m *memory) Ended() map[uint32]bool { return m.ended }

func (m *memory) Promised(uint32) (sum uint64) {
	for _, n := range m.nodes {
		if !m.ended[n.ID] {
			sum += n.Worth.BytesPerSec
		}
	}
	for _, s := range m.sockets {
		sum += s.BytesPerSec
	}
	return sum
}

func (m *memory) Sockets() []enforce.SocketReservation { return slices.Clone(m.sockets) }

func (m *memory) node(id uint32) *Node {
	return &m.nodes[slices.IndexFunc(m.nodes, func(n Node) bool { return n.ID == id })]
}

func (m *memory) SetWorth(node uint32, is plan.Worth) { m.node(node).Worth = is }

func (m *memory) Release(node uint32, owner enforce.Owner) error {
	if m.fails != nil {
		return m.fails
	}
	m.released = append(m.released, node)
	n := m.node(node)
	n.Requested[owner], n.Holding, n.Worth = limit.Slice{}, limit.Slice{}, plan.Worth{}
	return nil
}

func (m *memory) Asker(uint64) (enforce.SocketReservation, bool, error) {
	return m.asker, m.asker.Cookie != 0, nil
}

func (m *memory) Reserve(is enforce.SocketReservation) error {
	m.sockets = slices.DeleteFunc(m.sockets, func(s enforce.SocketReservation) bool { return s.Cookie == is.Cookie })
	if is.SliceNS != 0 {
		m.sockets = append(m.sockets, is)
	}
	return m.fails
}

// slice is a reservation of so much of the link: the rate of the link is 10 MB/s.
func slice(bytesPerSec uint64) limit.Slice {
	return limit.Slice{Link: "eth0", PeriodNS: 1e7, SliceNS: bytesPerSec}
}

// reserved is a process's node with a reservation of a user's.
func reserved(id, user uint32, of limit.Slice) Node {
	n := Node{ID: id, User: user, Holding: of}
	n.Requested[enforce.OwnerUser] = of
	return n
}

// granted is the node of bob, who may reserve a part of the link.
func granted(ppm uint32) Node {
	return Node{ID: 1, IsUser: true, Key: bob, Grant: limit.Grant{Link: "eth0", PPM: ppm}}
}

// ask carries out a request for a socket of bob's.
func (m *memory) ask(cookie, bytesPerSec uint64, admin bool) (enforce.Answer, error) {
	m.asker = enforce.SocketReservation{Cookie: cookie, UID: bob, Link: eth0}
	for _, s := range m.sockets {
		if s.Cookie == cookie {
			m.asker = s
		}
	}
	return m.OfSocket(enforce.Request{UID: bob, Admin: admin, Reserve: &enforce.SocketSlice{PeriodNS: 1e7, SliceNS: bytesPerSec}})
}

func TestWorth(t *testing.T) {
	m := newMemory(t, reserved(2, bob, slice(1e6)))
	require.Equal(t, plan.Worth{Link: eth0, BytesPerSec: 1e6}, m.nodes[0].Worth)
	require.NoError(t, m.Reserve(enforce.SocketReservation{Cookie: 1, UID: bob, Link: eth0, BytesPerSec: 1e6, SocketSlice: enforce.SocketSlice{PeriodNS: 1e7, SliceNS: 1e6}}))
	m.rate = 20e6
	m.Follow()
	require.EqualValues(t, 2e6, m.nodes[0].Worth.BytesPerSec)
	require.EqualValues(t, 2e6, m.sockets[0].BytesPerSec)
	m.rate = 0
	m.Follow()
	require.Equal(t, plan.Worth{}, m.nodes[0].Worth)
	require.Empty(t, m.sockets, "that of a socket ends with the limit of its link")

	err := m.Admit(auth.Actor{}, Node{Requested: [enforce.Owners]limit.Slice{slice(1)}})
	require.ErrorContains(t, err, "what eth0 carries is not known")
	require.NoError(t, m.Admit(auth.Actor{}, Node{}), "nothing is requested")
}

// A user may reserve as much as the grant in all, in processes and sockets. Processes that have ended do not count.
func TestGrant(t *testing.T) {
	by := auth.Actor{UID: bob + 1} // counts as bob
	m := newMemory(t, granted(300_000), reserved(2, bob, slice(1e6)), reserved(3, bob, slice(5e5)), reserved(4, bob+5, slice(5e6)))
	_, err := m.ask(1, 5e5, false)
	require.NoError(t, err)
	admits := func(id uint32, bytesPerSec uint64) error { return m.Admit(by, reserved(id, bob, slice(bytesPerSec))) }
	require.NoError(t, admits(5, 1e6))
	require.ErrorContains(t, admits(5, 1e6+1), "more than you were granted of link:eth0: 3 MB/s, of which 2 MB/s are reserved already")
	require.NoError(t, admits(2, 2e6), "instead of its present one")

	m.ended = map[uint32]bool{2: true, 3: false}
	require.NoError(t, admits(5, 2e6))
	require.ErrorIs(t, admits(5, 2e6+1), auth.ErrDenied)

	m.nodes[0].Grant = limit.Grant{}
	require.ErrorIs(t, admits(5, 1), auth.ErrDenied)
}

// A grant that shrinks releases what is beyond it. Ended processes come first, then the latest socket, then the latest
// process.
func TestGrantShrinks(t *testing.T) {
	m := newMemory(t, granted(400_000), reserved(2, bob, slice(1e6)), reserved(3, bob, slice(1e6)), reserved(4, bob+5, slice(1e6)))
	for cookie := range uint64(2) {
		_, err := m.ask(cookie+1, 1e6, false)
		require.NoError(t, err)
	}
	m.ended = map[uint32]bool{2: true}
	shrink := func(ppm uint32) {
		m.nodes[0].Grant.PPM = ppm
		m.FollowGrant(bob+1, "eth0")
	}
	shrink(400_000)
	require.Empty(t, m.released)
	shrink(300_000)
	require.Equal(t, []uint32{2}, m.released)
	require.Len(t, m.sockets, 2)
	shrink(200_000)
	require.Len(t, m.sockets, 1)
	require.EqualValues(t, 1, m.sockets[0].Cookie)
	shrink(100_000)
	require.Empty(t, m.sockets)
	m.fails = errors.New("not now")
	shrink(0)
	require.Equal(t, []uint32{2}, m.released, "and it does not try for ever")
	m.fails = nil
	shrink(0)
	require.Equal(t, []uint32{2, 3}, m.released)
	m.FollowGrant(bob, "eth1")
}

// Reservations of ended processes are left for a socket.
func TestSocketBesideEnded(t *testing.T) {
	m := newMemory(t, granted(wholeGrant), reserved(2, bob, slice(9e6)))
	a, err := m.ask(1, 1e6, false)
	require.Equal(t, unix.EBUSY, err)
	require.EqualValues(t, 5e5, a.LeftBytesPerSec)
	m.ended = map[uint32]bool{2: true}
	a, err = m.ask(1, 1e6, false)
	require.NoError(t, err)
	require.EqualValues(t, 8.5e6, a.LeftBytesPerSec)
	a, err = m.ask(1, 0, true)
	require.NoError(t, err)
	require.EqualValues(t, 9.5e6, a.LeftBytesPerSec)

	_, err = m.OfSocket(enforce.Request{UID: bob + 5, Reserve: &enforce.SocketSlice{PeriodNS: 1e7, SliceNS: 1}})
	require.Equal(t, unix.EPERM, err, "a socket of another user")
	_, err = m.ask(0, 1, true)
	require.Equal(t, unix.ENODEV, err)
}

// wholeGrant grants the whole link.
const wholeGrant = limit.WholePPM
