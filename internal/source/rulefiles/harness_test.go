package rulefiles

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/source/rulefiles/rulefilestest"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon = testutil.Soon
	poll = testutil.Poll
)

var (
	root       = auth.Actor{UID: 0}
	name, rule = rulefilestest.Program, rulefilestest.Rule
)

// memory is a Host that keeps what rules request, and enforces nothing.
type memory struct {
	mu     sync.Mutex
	nodes  map[uint32]*limited
	lastID uint32
	lifted int // how many nodes have gone
	around map[int][]desired.Rules
	shared map[string][]int // members of each rule's node, by the rule's key
	full   bool             // no process may have a new node of its own
	last   Process          // the process that Apply was called for last

	destinations Destinations
	events       []api.Event
	isDown       bool
}

// limited is a process with a node of its own.
type limited struct {
	identity.Resolved
	rules desired.Rules
}

func (m *memory) Apply(p Process) (node uint32, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = p
	if m.isDown {
		return 0, false
	}
	join := func(list []Shared) {
		for _, r := range list {
			if m.shared == nil {
				m.shared = make(map[string][]int)
			}
			m.shared[r.Key] = append(m.shared[r.Key], int(p.Key))
		}
	}
	join(p.Shared)
	id, before := uint32(0), desired.Rules{}
	for of, n := range m.nodes {
		if n.Same(p.Resolved) {
			id, before = of, n.rules
		}
	}
	if id == 0 && m.full {
		join(p.Instead)
		return 0, false
	}
	if id == 0 {
		m.lastID++
		id = m.lastID
	}
	return id, m.set(id, p.Resolved, p.Own(before, m.around[int(p.Key)]))
}

// set sets what rules request of a node, and reports whether there is one.
func (m *memory) set(id uint32, of identity.Resolved, request desired.Rules) bool {
	if m.nodes == nil {
		m.nodes = make(map[uint32]*limited)
	}
	if !request.Empty() {
		m.nodes[id] = &limited{of, request}
		return true
	}
	if m.nodes[id] != nil {
		m.lifted++
	}
	delete(m.nodes, id)
	return false
}

func (m *memory) Review(looked map[uint32]bool, next func(uid uint32, before desired.Rules) desired.Rules) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isDown {
		return
	}
	for id, n := range m.nodes {
		if !looked[id] {
			m.set(id, n.Resolved, next(n.UID, n.rules))
		}
	}
}

func (m *memory) Learn(_ time.Time, _ *rules.Set, all Destinations) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.destinations = all
}

func (m *memory) LimitCounts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string]int)
	for _, n := range m.nodes {
		for _, of := range n.rules.Owners {
			for _, from := range of.Rules {
				counts[from.Key]++
			}
		}
	}
	return counts
}

func (m *memory) CountsAs(uid uint32) uint32 { return uid }

func (m *memory) Publish(_ [2]uint32, event func() api.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, event())
}

func (m *memory) IsDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isDown
}

// requests returns what rules request of a process's own node.
func (m *memory) requests(pid int) desired.Rules {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		if n.Key == uint64(pid) {
			return n.rules
		}
	}
	return desired.Rules{}
}

// limit returns the lowest rate that rules request for a process; 0 = none.
func (m *memory) limit(pid int) (rate uint64) {
	for _, of := range m.requests(pid).Owners {
		if up := of.Wish.Up; up != 0 && (rate == 0 || up < rate) {
			rate = up
		}
	}
	return rate
}

// harness is a source with files and processes of its own.
type harness struct {
	*Source
	*memory
	*rulefilestest.Files
	t    *testing.T
	fake *enforcetest.Kernel
	stop func()
}

// newHarness starts a source, and waits until it has read all rules.
func newHarness(t *testing.T, text string, change func(*Options)) *harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "nn") // t.TempDir is closed to the processes of other users, which run programs there
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &harness{t: t, fake: new(enforcetest.Kernel), memory: new(memory), Files: rulefilestest.New(t, dir)}
	h.Write(text)
	h.start(change)
	h.eventually("the rules are read", h.HasRead)
	return h
}

// start starts a source that takes over what another one has left with the host.
func (h *harness) start(change func(*Options)) {
	h.t.Helper()
	resolver, err := identity.New(identity.Options{CgroupRoot: h.t.TempDir()})
	require.NoError(h.t, err)
	o := Options{
		Log: slog.New(slog.NewTextHandler(h.t.Output(), nil)), Kernel: h.fake, Resolver: resolver, Host: h.memory,
		Dir: h.System(), Homes: h.Homes, Tick: 20 * time.Millisecond, Now: time.Now,
	}
	if change != nil {
		change(&o)
	}
	h.Source = New(o)
	h.Open()
	ctx, cancel := context.WithCancel(context.Background())
	var keepers sync.WaitGroup
	tick := time.NewTicker(o.Tick)
	source := h.Source
	keepers.Go(func() { source.Keep(ctx, tick.C) })
	keepers.Go(func() { source.KeepExecs(ctx) })
	h.stop = sync.OnceFunc(func() {
		cancel()
		keepers.Wait()
		tick.Stop()
	})
	h.t.Cleanup(h.stop)
}

func (h *harness) eventually(what string, condition func() bool) {
	h.t.Helper()
	require.Eventually(h.t, condition, soon, poll, what)
}

// started runs a program, and returns when the source has handled its exec.
func (h *harness) started(name string) int {
	h.t.Helper()
	pid := h.Run(name, 0)
	h.executed(pid)
	return pid
}

// executed returns when the source has handled the exec of a process.
func (h *harness) executed(pid int) {
	h.fake.Exec(pid)
	h.fake.Exec(1 << 30) // taken when the source has handled the events before it
	h.fake.Exec(1 << 30)
}

func (h *harness) reload() api.RuleList {
	h.t.Helper()
	list, err := h.Reload(h.t.Context(), root)
	require.NoError(h.t, err)
	return list
}

var _ Host = (*memory)(nil)
