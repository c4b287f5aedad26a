package adaptation

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/statefile/statefiletest"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon = testutil.Soon
	poll = testutil.Poll
)

var root = auth.Actor{UID: 0}

// limitOnHost is a limit that the table has set.
type limitOnHost struct {
	node    uint32
	rate    uint64
	backlog uint64
	met     bool
}

// memory is a Host and a kernel side that keep all in memory.
type memory struct {
	statefiletest.Memory[Saved, *Saved]

	mu     sync.Mutex
	limits map[string]*limitOnHost
	last   uint32 // the last node
	peers  []enforce.Peer
	queues map[uint32]int // held queues, by network namespace
}

func newMemory() *memory {
	return &memory{limits: map[string]*limitOnHost{}, queues: map[uint32]int{}}
}

func (m *memory) Unwritten(bool) []string { return nil }

func (m *memory) SetLimit(_ context.Context, to api.Subject, bytesPerSec uint64, met bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limits[to.String()]
	if l == nil {
		m.last++
		l = &limitOnHost{node: m.last, met: met}
		m.limits[to.String()] = l
	}
	l.rate, l.met = bytesPerSec, l.met && met
	return nil
}

func (m *memory) LiftLimit(_ context.Context, to api.Subject) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.limits, to.String())
	return nil
}

func (m *memory) LimitOn(to api.Subject) (node uint32, bytesPerSec uint64, ok bool) {
	l := m.limit(to.String())
	return l.node, l.rate, l.rate != 0
}

func (m *memory) SetRate(node uint32, to api.Subject, bytesPerSec uint64, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limits[to.String()]
	if l == nil || l.node != node {
		return ErrLifted
	}
	l.rate = bytesPerSec
	return nil
}

func (m *memory) BoundBacklog(to api.Subject, ns uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.limits[to.String()]; l != nil {
		l.backlog = ns
	}
	return nil
}

func (m *memory) LookUp(_ context.Context, name string) ([]netip.Addr, error) {
	if name != "far.example" {
		return nil, &api.Error{Code: api.CodeNotFound, Message: name + " is not found"}
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, nil
}

func (m *memory) SentBytes(node uint32) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.limits {
		if l.node == node {
			return 0, nil
		}
	}
	return 0, errors.New("no such node")
}

func (m *memory) Peers(uint32) ([]enforce.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]enforce.Peer(nil), m.peers...), nil
}

func (m *memory) Probes(int) error { return nil }

func (m *memory) Gate(uint32, time.Duration) (enforce.Gate, error) {
	return nil, enforce.ErrNotSupported
}

func (m *memory) HoldQueue(netns uint32) (release func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[netns]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.queues[netns]--
	}), nil
}

// setPeers sets the addresses that programs send to, all from one network namespace, 0 = the test's own.
func (m *memory) setPeers(t *testing.T, netns uint32, addresses ...string) {
	t.Helper()
	if netns == 0 {
		var err error
		netns, err = netnamespace.Of("self")
		require.NoError(t, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range addresses {
		m.peers = append(m.peers, enforce.Peer{Address: netip.MustParseAddr(text), Netns: netns})
	}
}

// limit returns the limit on a destination, the zero value if there is none.
func (m *memory) limit(to string) limitOnHost {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.limits[to]; l != nil {
		return *l
	}
	return limitOnHost{}
}

// heldQueues returns how often the queue of the test's own network namespace is held.
func (m *memory) heldQueues() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues[0]
}

// harness is a table without a daemon, a kernel and a network.
type harness struct {
	*Table
	t    *testing.T
	mem  *memory
	met  []api.Subject // Adopt has returned these hosts
	stop func()        // stop ends the table as the end of a daemon does; the limits stay
}

func newHarness(t *testing.T) (*harness, *hostpathtest.Paths) {
	t.Helper()
	paths := hostpathtest.New(500e3)
	return startTable(t, newMemory(), paths, false), paths
}

// startTable starts a table that takes over what another one has left.
func startTable(t *testing.T, mem *memory, paths *hostpathtest.Paths, isRuled bool) *harness {
	t.Helper()
	table := New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kernel: mem, Host: mem, OpenPath: paths.Open, FollowsRules: isRuled,
	})
	met, err := table.Adopt()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	tick := time.NewTicker(20 * time.Millisecond)
	var keeper sync.WaitGroup
	keeper.Go(func() { table.Keep(ctx, tick.C) })
	stop := sync.OnceFunc(func() {
		cancel()
		keeper.Wait()
		tick.Stop()
	})
	t.Cleanup(stop)
	return &harness{Table: table, t: t, mem: mem, met: met, stop: stop}
}

func (h *harness) set(by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	h.t.Helper()
	return h.Set(context.Background(), by, req)
}

// upTo returns the limit on a destination, 0 = none.
func (h *harness) upTo(to string) uint64 { return h.mem.limit(to).rate }

// addresses returns those whose paths are followed.
func (h *harness) addresses() (list []string) {
	for _, a := range h.List(root).Adapted {
		list = append(list, a.Address)
	}
	return list
}

func (h *harness) eventually(what string, condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, condition, soon, poll, what)
}
