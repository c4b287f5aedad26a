package observe

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is long enough for a busy machine; the awaited events take milliseconds.
const soon = 5 * time.Second

var (
	root       = auth.Actor{UID: 0}
	errLeaving = &api.Error{Code: api.CodeConflict, Message: "it leaves", Hint: "again"}
	errClosed  = errors.New("closed")
)

// These are two users that no machine has. The secret part of bob's traffic is in 203.0.113.0/24.
var (
	bobs = auth.Actor{UID: 41001}
	eves = auth.Actor{UID: 41002}
)

const (
	ofBob  = "user:41001"
	secret = "203.0.113."
)

// memory is a kernel side that keeps all in memory.
type memory struct {
	mu     sync.Mutex
	calls  int // readings of sockets
	stats  map[uint32]enforce.NodeStats
	queues []enforce.Queue
	looks  []enforce.SocketLook
	trees  []uint32 // those that each process is in
	whole  enforce.StatelessStats
	closed bool
	// stuck makes readings wait until it is closed, nil = they do not.
	stuck   chan struct{}
	waiting atomic.Int32 // readings that wait
}

func (m *memory) wait() error {
	m.mu.Lock()
	stuck, closed := m.stuck, m.closed
	m.mu.Unlock()
	if stuck != nil {
		m.waiting.Add(1)
		defer m.waiting.Add(-1)
		<-stuck
	}
	if closed {
		return errClosed
	}
	return nil
}

func (m *memory) Stats() (list []enforce.NodeStats, err error) {
	err = m.wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.stats {
		s.ID = id
		list = append(list, s)
	}
	return list, err
}

func (m *memory) Sockets() ([]enforce.SocketStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	return nil, nil
}

func (m *memory) Stateless() (enforce.StatelessStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.whole, nil
}

func (m *memory) Unknown() (enforce.UnknownStats, error) { return enforce.UnknownStats{}, nil }

func (m *memory) Look(id uint32) (enforce.NodeStats, []enforce.SocketStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats[id], nil, nil
}

func (m *memory) Inspect(wanted func(inode uint64, pid uint32) bool) (list []enforce.SocketLook, err error) {
	err = m.wait()
	for _, s := range m.looks {
		if wanted(s.Inode, s.PID) {
			list = append(list, s)
		}
	}
	return list, err
}

func (m *memory) Trees(int) []uint32 { return m.trees }

func (m *memory) Queues() ([]enforce.Queue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues, nil
}

func (m *memory) Reserved() ([]enforce.SocketReservation, error) { return nil, nil }

// count replaces the counters of a node.
func (m *memory) count(id uint32, s enforce.NodeStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		m.stats = make(map[uint32]enforce.NodeStats)
	}
	m.stats[id] = s
}

// harness is an Observer, and the writer who publishes what it observes.
type harness struct {
	*Observer
	t   *testing.T
	mem *memory
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	resolver, err := identity.New(identity.Options{CgroupRoot: t.TempDir()})
	require.NoError(t, err)
	mem := new(memory)
	return &harness{t: t, mem: mem, Observer: New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kernel: mem, Resolver: resolver, Tick: time.Second,
		CPUShares: func() []api.Power { return nil }, Leaving: errLeaving,
	})}
}

// publish changes nodes.
func (h *harness) publish(nodes ...*Node) {
	changed := make(map[uint32]*Node, len(nodes))
	for _, n := range nodes {
		changed[n.ID] = n
	}
	h.Publish(h.Snapshot().With(changed, nil))
	h.Outdate()
}

// lift removes a node.
func (h *harness) lift(id uint32) {
	h.Publish(h.Snapshot().With(map[uint32]*Node{id: nil}, nil))
	h.Outdate()
}

func (h *harness) nodes(by auth.Actor) []api.Node {
	h.t.Helper()
	list, err := h.Nodes(by)
	require.NoError(h.t, err)
	return list.Nodes
}

// onUser is a node on a user with one limit on sending.
func onUser(id, uid uint32, up uint64) *Node {
	n := &Node{ID: id, Resolved: identity.User(uid), Since: time.Now()}
	n.Holding[enforce.OwnerAdmin].Up = up
	n.Limits = []Limit{{Limit: api.Limit{Owner: api.OwnerAdmin, Direction: api.Up, BytesPerSec: up, Enforced: true}}}
	return n
}

// told returns the whole text of an answer.
func told(t testing.TB, answer any, err error) string {
	t.Helper()
	require.NoError(t, err)
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	return string(text)
}

// returnsSoon fails the test if a call waits.
func returnsSoon(t *testing.T, what string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(soon):
		require.Fail(t, what+" waits")
	}
}
