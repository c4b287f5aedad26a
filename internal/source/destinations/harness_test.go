package destinations

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/names"
	"github.com/netnice/netnice/internal/source/prefixlists"
	"github.com/netnice/netnice/internal/source/rulefiles"
	"github.com/netnice/netnice/internal/statefile"
)

var (
	root = auth.Actor{UID: 0}
	bob  = auth.Actor{UID: 4242}
)

// memory is a Host that keeps the nodes in memory.
type memory struct {
	kernel *enforcetest.Kernel
	source *Source[*change]
	nodes  map[uint32]limited
	holds  map[uint32]int // limits under a node
	lastID uint32
	isDown bool
	said   []string // events, in their order
	failed []error
}

// limited is a node with what owners request of it.
type limited struct {
	Node
	requested limit.Owners
	isOfRule  bool
}

// change is a transaction of memory's. It has no file.
type change struct {
	request.Transaction
	*memory
	isAssigned bool
}

func (c *change) Commit() { c.Finish(func() {}) }

func (c *change) RollBack(cause error) error {
	left := c.Undo()
	if c.isAssigned {
		c.source.Outdate()
		left = append(left, c.source.Assign())
	}
	return request.NotUndone(cause, slices.DeleteFunc(left, func(err error) bool { return err == nil })...)
}

func (c *change) NoteAssigned() { c.isAssigned = true }

func (c *change) Hold(under identity.Resolved) (uint32, error) {
	for id, n := range c.nodes {
		if n.Same(under) {
			c.hold(id, 1)
			return id, nil
		}
	}
	id, err := c.put(limited{Node: Node{Resolved: under}})
	if err == nil {
		c.hold(id, 1)
	}
	return id, err
}

func (c *change) hold(id uint32, more int) {
	c.holds[id] += more
	c.OnFailure(func() error {
		c.holds[id] -= more
		return nil
	})
}

// put brings a node into force, which is new without an id.
func (c *change) put(n limited) (uint32, error) {
	before, isThere := c.nodes[n.ID]
	if !isThere {
		c.lastID++
		n.ID = c.lastID
	}
	if err := c.kernel.SetNode(n.spec()); err != nil {
		return 0, err
	}
	c.nodes[n.ID] = n
	c.OnFailure(func() error {
		if isThere {
			c.nodes[n.ID] = before
			return c.kernel.SetNode(before.spec())
		}
		delete(c.nodes, n.ID)
		return c.kernel.RemoveNode(n.ID)
	})
	return n.ID, nil
}

func (n *limited) spec() enforce.NodeSpec {
	return enforce.NodeSpec{ID: n.ID, Kind: n.Kind, Subject: n.Key, Weight: limit.DefaultWeight, Own: n.OnlyUser, Ceilings: n.requested.Ceilings()}
}

func (c *change) MarkLeaving(id uint32) {
	before := c.nodes[id]
	c.memory.MarkLeaving(id)
	c.OnFailure(func() error {
		c.nodes[id] = before
		return nil
	})
}

func (c *change) LiftLimit(id uint32) error {
	under := c.nodes[id].Scope
	if err := c.lift(id); err != nil || under == 0 {
		return err
	}
	if c.hold(under, -1); c.holds[under] == 0 {
		return c.lift(under)
	}
	return nil
}

func (c *change) lift(id uint32) error {
	before := c.nodes[id]
	if err := c.kernel.RemoveNode(id); err != nil {
		return err
	}
	delete(c.nodes, id)
	c.OnFailure(func() error {
		c.nodes[id] = before
		return c.kernel.SetNode(before.spec())
	})
	return nil
}

func (h *memory) Lock()   {}
func (h *memory) Unlock() {}
func (h *memory) Drain()  {}

func (h *memory) Begin() (*change, error) { return &change{memory: h}, nil }

// Read and Update implement names.Host.
func (h *memory) Read(read func())                              { read() }
func (h *memory) Update(func(map[string]bool) names.Change)     {}
func (h *memory) Trees(func(rulefiles.Tree) bool)               {}
func (h *memory) SetRuled(id uint32, _ *rulefiles.Limit) uint32 { return id }
func (h *memory) IsDown() bool                                  { return h.isDown }
func (h *memory) Complain(err error)                            { h.failed = append(h.failed, err) }
func (h *memory) SharedChanged()                                {}
func (h *memory) WakePeers()                                    { h.said = append(h.said, "peers") }
func (h *memory) Unwritten(bool) []string                       { return nil }
func (h *memory) MaySee(by auth.Actor, id uint32) bool          { return h.nodes[id].UID == by.UID }

func (h *memory) Nodes(yield func(Node) bool) {
	for _, id := range slices.Sorted(maps.Keys(h.nodes)) {
		if n := h.nodes[id]; n.Kind == enforce.KindDestination && !n.isOfRule && !yield(n.Node) {
			return
		}
	}
}

func (h *memory) Ruled(yield func(uint64, uint32) bool) {
	for id, n := range h.nodes {
		if n.isOfRule && !yield(n.Key, id) {
			return
		}
	}
}

func (h *memory) Named(s api.Subject) (list []Node) {
	for n := range h.Nodes {
		if n.Subject == s {
			list = append(list, n)
		}
	}
	return list
}

func (h *memory) Orphans() (list []uint32) {
	for n := range h.Nodes {
		if _, isThere := h.nodes[n.Scope]; n.Scope != 0 && !isThere {
			list = append(list, n.ID)
		}
	}
	return list
}

func (h *memory) MarkLeaving(id uint32) {
	n := h.nodes[id]
	n.IsLeaving = true
	h.nodes[id] = n
}

func (h *memory) End(id uint32) {
	delete(h.nodes, id)
	h.said = append(h.said, "ended")
}

func (h *memory) LiftRuled(id uint32) {
	delete(h.nodes, id)
	h.said = append(h.said, "a rule's was lifted")
}

func (h *memory) Lifted(_ auth.Actor, id uint32) func() {
	text := "lifted " + h.nodes[id].Subject.String()
	return func() { h.said = append(h.said, text) }
}

// inMemory is the request for a limit in memory.
type inMemory struct {
	request.Exchange
	*memory
	req   api.SetRequest
	node  limited
	wrote []string
}

func (h *memory) Limit(by auth.Actor, req api.SetRequest) Limit[*change] {
	return &inMemory{Exchange: request.Exchange{By: by, DryRun: req.DryRun}, memory: h, req: req}
}

func (r *inMemory) Begin(_ identity.Resolved, n Node) {
	if r.node = r.nodes[n.ID]; n.ID == 0 {
		r.node = limited{Node: n}
	}
}

func (r *inMemory) Authorise() error { return nil }

func (r *inMemory) Plan(*change) error {
	l := &r.node.requested[r.By.Owner()]
	was := *l
	if *l = l.Merge(r.req.Wish); was.Empty() && l.Empty() {
		r.IsAnswered = true
		return nil
	}
	r.node.List = prefixlists.Key{RuleSet: r.node.RuleSet, Path: r.node.Selector.List}
	r.Answer.Changed = *l != was
	return nil
}

func (r *inMemory) Apply(tx *change) (err error) {
	r.node.ID, err = tx.put(r.node)
	return err
}

func (r *inMemory) Finish() {
	if !r.DryRun {
		r.said = append(r.said, "set "+r.node.Subject.String())
	}
}

func (r *inMemory) Wrote(path string) { r.wrote = append(r.wrote, path) }
func (r *inMemory) Node() Node        { return r.node.Node }
func (r *inMemory) SetNode(n Node)    { r.node.Node = n }
func (r *inMemory) IsLifted() bool    { return r.node.requested == limit.Owners{} }

// harness is a source with a host of its own.
type harness struct {
	*memory
	t     *testing.T
	names *names.Source
	lists *prefixlists.Lists
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{memory: &memory{kernel: new(enforcetest.Kernel), nodes: make(map[uint32]limited), holds: make(map[uint32]int)}, t: t}
	_, err := h.kernel.Open()
	require.NoError(t, err)
	resolver, err := identity.New(identity.Options{})
	require.NoError(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h.names = names.New(names.Options{Log: log, Host: h, Every: time.Hour, LookUp: func(_ context.Context, name string) ([]netip.Addr, error) {
		if name != "a.example" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("192.0.2.9")}, nil
	}})
	h.lists = prefixlists.New(prefixlists.Options{Files: statefile.New(statefile.Options{Dir: t.TempDir(), Log: log}), Changed: func() {}, Complain: h.Complain})
	h.source = New(Options[*change]{
		AssignmentOptions: AssignmentOptions{Log: log, Kernel: h.kernel, Names: h.names, Lists: h.lists},
		Resolver:          resolver, Host: h,
	})
	return h
}

func (h *harness) carry(r request.Steps[*change]) (api.SetResponse, error) {
	return request.Carry[*change](h.t.Context(), h, r)
}

func (h *harness) set(by auth.Actor, to string, rate uint64, prefixes ...string) (api.SetResponse, error) {
	return h.carry(h.source.Set(by, requestOf(to, rate, prefixes...), false))
}

// mustSet sets a limit, and returns its node.
func (h *harness) mustSet(by auth.Actor, to string, rate uint64, prefixes ...string) Node {
	h.t.Helper()
	before := h.lastID
	_, err := h.set(by, to, rate, prefixes...)
	require.NoError(h.t, err)
	require.NotEqual(h.t, before, h.lastID, "there is a new node")
	return h.nodes[h.lastID].Node
}

func (h *harness) remove(by auth.Actor, to string) (api.SetResponse, error) {
	return h.carry(h.source.Remove(by, api.Subject{Kind: api.KindTo, ID: to}, false))
}

func requestOf(to string, rate uint64, prefixes ...string) api.SetRequest {
	return api.SetRequest{Subject: api.Subject{Kind: api.KindTo, ID: to}, Wish: api.Wish{UpBytesPerSec: &rate}, Prefixes: prefixes}
}

// everything is all that a request may change.
func (h *harness) everything() []any {
	specs, err := h.kernel.Nodes()
	require.NoError(h.t, err)
	slices.SortFunc(specs, func(a, b enforce.NodeSpec) int { return int(a.ID) - int(b.ID) })
	holds := maps.Clone(h.holds)
	maps.DeleteFunc(holds, func(_ uint32, n int) bool { return n == 0 })
	return []any{maps.Clone(h.nodes), holds, specs, h.kernel.Destinations(), h.names.Shown(), maps.Collect(h.lists.All())}
}

var (
	_ Host[*change]         = (*memory)(nil)
	_ request.Host[*change] = (*memory)(nil)
	_ names.Host            = (*memory)(nil)
)
