package groups

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

var (
	root = auth.Actor{UID: 0}
	bob  = auth.Actor{UID: 4242}
)

// memory is a Host that keeps the nodes in memory, and a Resolver of processes that are nowhere else.
type memory struct {
	kernel    *enforcetest.Kernel
	source    *Source[*change]
	processes map[string]identity.Resolved // by the number
	nodes     map[uint32]Node
	lastID    uint32
	quota     int    // the most nodes that there may be; 0 = any number
	counted   [2]int // the limits and new nodes that the last request needs
	drained   int
}

// change is a transaction of memory's. It has no file.
type change struct {
	request.Transaction
	*memory
}

func (c *change) Commit() { c.Finish(func() {}) }

func (c *change) RollBack(cause error) error { return request.NotUndone(cause, c.Undo()...) }

func (c *change) SetMember(n Node) error { return c.set(&n) }

// set brings a node into force, or lifts it if nobody requests anything of it.
func (c *change) set(n *Node) error {
	before := c.nodes[n.ID]
	for owner := range n.Requested {
		n.Commanded[owner] = !n.Requested[owner].Empty()
	}
	n.OnlyUser = !n.Commanded[enforce.OwnerAdmin]
	if n.Commanded == [enforce.Owners]bool{} {
		return c.lift(*n)
	}
	if n.ID == 0 {
		n.ID = c.FreeID()
	}
	if err := c.kernel.SetNode(c.spec(*n)); err != nil {
		return err
	}
	c.nodes[n.ID] = *n
	id := n.ID
	c.OnFailure(func() error {
		if before.ID == 0 {
			delete(c.nodes, id)
			return c.kernel.RemoveNode(id)
		}
		c.nodes[id] = before
		return c.kernel.SetNode(c.spec(before))
	})
	return nil
}

func (c *change) lift(n Node) error {
	if n.Subject.Kind == api.KindGroup {
		if err := c.source.ReleaseMembers(c, n.Subject.ID); err != nil {
			return err
		}
	}
	before := c.nodes[n.ID]
	if err := c.kernel.RemoveNode(n.ID); err != nil {
		return err
	}
	delete(c.nodes, n.ID)
	c.OnFailure(func() error {
		c.nodes[n.ID] = before
		return c.kernel.SetNode(c.spec(before))
	})
	return nil
}

func (h *memory) spec(n Node) enforce.NodeSpec {
	return enforce.NodeSpec{
		ID: n.ID, Kind: n.Kind, Subject: n.Key, StartBoottimeNS: n.StartBoottimeNS, Parent: n.Outer,
		Weight: n.Requested.Weight(), Own: n.OnlyUser, Ceilings: n.Requested.Ceilings(),
	}
}

func (h *memory) Lock()   {}
func (h *memory) Unlock() {}
func (h *memory) Drain()  { h.drained++ }

func (h *memory) Begin() (*change, error) { return &change{memory: h}, nil }

func (h *memory) Resolve(_ context.Context, s api.Subject) (identity.Resolved, error) {
	if res, ok := h.processes[s.ID]; ok {
		return res, nil
	}
	return identity.Resolved{}, &api.Error{Code: api.CodeNotFound, Message: "no process has pid " + s.ID, Hint: "ps -e", Cause: identity.ErrNotFound}
}

func (h *memory) first(is func(Node) bool) Node {
	for _, id := range slices.Sorted(maps.Keys(h.nodes)) {
		if is(h.nodes[id]) {
			return h.nodes[id]
		}
	}
	return Node{}
}

func (h *memory) Find(of identity.Resolved) Node {
	return h.first(func(n Node) bool { return n.Same(of) })
}

func (h *memory) FindName(s api.Subject) Node {
	return h.first(func(n Node) bool { return n.Subject == s })
}

func (h *memory) Get(id uint32) Node { return h.nodes[id] }

func (h *memory) Members(group string) (list []Node) {
	for _, id := range slices.Sorted(maps.Keys(h.nodes)) {
		if n := h.nodes[id]; n.Group == group {
			list = append(list, n)
		}
	}
	return list
}

func (h *memory) MayChange(by auth.Actor, n Node) error {
	if by.Root() || !n.Commanded[enforce.OwnerUser] || n.User == by.UID {
		return nil
	}
	return auth.Check(by, auth.LiftOthers, auth.Target{Subject: n.Subject, Kind: n.Kind, UID: n.User})
}

func (h *memory) Quota(_ auth.Actor, limits, newNodes int) error {
	h.counted = [2]int{limits, newNodes}
	if h.quota != 0 && len(h.nodes)+newNodes > h.quota {
		return &api.Error{Code: api.CodeConflict, Message: "too many", Hint: "netnice ls"}
	}
	return nil
}

func (h *memory) FreeID() uint32 {
	h.lastID++
	return h.lastID
}

func (h *memory) EndGone() {
	for id, n := range h.nodes {
		if n.Subject.Kind == api.KindGroup && len(h.Members(n.Subject.ID)) == 0 {
			delete(h.nodes, id)
		}
	}
}

func (h *memory) Unwritten(bool) []string { return nil }

// groupLimit is the request for the limit of a group in memory.
type groupLimit struct {
	request.Exchange
	*memory
	req             api.SetRequest
	node, fresh     Node
	isFirst, isSame bool
}

func (h *memory) Limit(by auth.Actor, req api.SetRequest, fresh identity.Resolved) Limit[*change] {
	return &groupLimit{Exchange: request.Exchange{By: by, DryRun: req.DryRun}, memory: h, req: req, fresh: Node{Resolved: fresh}}
}

func (r *groupLimit) Resolve(context.Context) error { return nil }

func (r *groupLimit) Find() error {
	if r.node = r.FindName(r.req.Subject); r.node.ID == 0 {
		r.node = r.fresh
	}
	return nil
}

func (r *groupLimit) Authorise() error { return r.MayChange(r.By, r.node) }

func (r *groupLimit) Plan(*change) error {
	l := &r.node.Requested[r.By.Owner()]
	merged := l.Merge(r.req.Wish)
	r.isFirst, r.isSame = l.Empty() && !merged.Empty(), merged == *l
	if l.Empty() && merged.Empty() {
		r.IsAnswered, r.isSame = true, true
		return nil
	}
	*l = merged
	if r.By.Owner() == enforce.OwnerUser {
		r.node.User = r.By.UID
	}
	r.Answer.Changed = !r.isSame
	return nil
}

func (r *groupLimit) Apply(tx *change) error {
	if r.isSame {
		return nil
	}
	return tx.set(&r.node)
}

func (r *groupLimit) Finish()            {}
func (r *groupLimit) Node() Node         { return r.node }
func (r *groupLimit) SetOuter(id uint32) { r.node.Outer = id }
func (r *groupLimit) IsFirst() bool      { return r.isFirst }
func (r *groupLimit) IsLifted() bool     { return r.node.Requested == limit.Owners{} }

// harness is a source with a host of its own.
type harness struct {
	*memory
	t *testing.T
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &memory{kernel: new(enforcetest.Kernel), processes: make(map[string]identity.Resolved), nodes: make(map[uint32]Node)}
	_, err := h.kernel.Open()
	require.NoError(t, err)
	h.processes["1"] = identity.Host()
	h.source = New(Options[*change]{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Kernel: h.kernel, Resolver: h, Host: h})
	return &harness{memory: h, t: t}
}

// process makes a process of a user, and returns its number.
func (h *harness) process(uid uint32) int {
	pid := 1000 + len(h.processes)
	s := identity.PIDSubject(pid)
	h.processes[s.ID] = identity.Resolved{Subject: s, Kind: enforce.KindTree, Key: uint64(pid), StartBoottimeNS: uint64(pid) * identity.TickNS, UID: uid}
	return pid
}

func (h *harness) carry(r request.Steps[*change]) (api.SetResponse, error) {
	return request.Carry[*change](h.t.Context(), h, r)
}

// set has processes join a group, with the weights that are given with them.
func (h *harness) set(by auth.Actor, group string, w api.Wish, members ...api.Member) (api.SetResponse, error) {
	return h.carry(h.source.Set(by, api.SetRequest{Subject: api.Subject{Kind: api.KindGroup, ID: group}, Wish: w, Members: members}))
}

func (h *harness) leave(by auth.Actor, group string, pids ...int) (api.SetResponse, error) {
	req := api.SetRequest{Subject: api.Subject{Kind: api.KindGroup, ID: group}, Leave: true}
	for _, pid := range pids {
		req.Members = append(req.Members, api.Member{PID: pid})
	}
	return h.carry(h.source.Leave(by, req))
}

// limited gives a process a limit of its own, by a command of the administrator's.
func (h *harness) limited(pid int) uint32 {
	h.t.Helper()
	return h.limit(pid, Node{Requested: limit.Owners{enforce.OwnerAdmin: {Up: 1e6}}})
}

// limit gives a process a limit.
func (h *harness) limit(pid int, n Node) uint32 {
	h.t.Helper()
	n.Resolved = h.processes[fmt.Sprint(pid)]
	tx, err := h.Begin()
	require.NoError(h.t, err)
	require.NoError(h.t, tx.set(&n))
	tx.Commit()
	return n.ID
}

// weights returns the weights of the members of group g, by the process.
func (h *harness) weights() map[int]uint32 {
	list := make(map[int]uint32)
	for _, n := range h.Members("g") {
		list[int(n.Key)] = n.Requested.Weight()
	}
	return list
}

func up(rate uint64) api.Wish { return api.Wish{UpBytesPerSec: &rate} }

func memberOf(pid int, weight uint32) api.Member { return api.Member{PID: pid, Weight: weight} }

var (
	_ Host[*change]         = (*memory)(nil)
	_ request.Host[*change] = (*memory)(nil)
)
