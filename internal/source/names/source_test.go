package names

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Host that has no limits, only the names that they would be for. It is a resolver, too.
type memory struct {
	mu      sync.Mutex // the lock of the limits
	wanted  map[string]bool
	changes []Change

	zone  sync.Mutex // guards the fields below
	list  map[string][]netip.Addr
	asked []string
}

func (h *memory) Read(read func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	read()
}

func (h *memory) Update(change func(wanted map[string]bool) Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := change(h.wanted); c.HasForgotten || c.Name != "" {
		h.changes = append(h.changes, c)
	}
}

func (h *memory) lookUp(_ context.Context, name string) ([]netip.Addr, error) {
	h.zone.Lock()
	defer h.zone.Unlock()
	h.asked = append(h.asked, name)
	if list, ok := h.list[name]; ok {
		return slices.Clone(list), nil
	}
	return nil, errors.New("no such host")
}

// set replaces what the resolver knows of a name.
func (h *memory) set(name string, addresses ...string) {
	h.zone.Lock()
	defer h.zone.Unlock()
	delete(h.list, name)
	for _, a := range addresses {
		h.list[name] = append(h.list[name], netip.MustParseAddr(a))
	}
}

// last returns the last change, and forgets all.
func (h *memory) last() (c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) > 0 {
		c = h.changes[len(h.changes)-1]
	}
	h.changes = nil
	return c
}

func newSource(t *testing.T) (*Source, *memory) {
	h := &memory{wanted: make(map[string]bool), list: make(map[string][]netip.Addr)}
	return New(Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Host: h, LookUp: h.lookUp, Every: time.Hour}), h
}

// learn looks names up, and remembers them for a limit.
func learn(t *testing.T, s *Source, h *memory, names ...string) (undo func()) {
	t.Helper()
	answers, err := s.LookUpNew(t.Context(), names)
	require.NoError(t, err)
	h.Read(func() { undo = s.Learn(answers) })
	for _, name := range names {
		h.wanted[name] = true
	}
	return undo
}

// A name follows its addresses. It keeps the last ones while it is not found, and is forgotten with the last limit for it.
func TestNameFollowsItsAddresses(t *testing.T) {
	s, h := newSource(t)
	h.set("a.example", "2001:db8::1", "::ffff:192.0.2.1", "192.0.2.1")
	learn(t, s, h, "a.example")
	require.Equal(t, map[string]api.NameAddresses{"a.example": {Name: "a.example", Addresses: []string{"192.0.2.1", "2001:db8::1"}}}, s.Shown())
	s.lookAgain(t.Context())
	require.Equal(t, Change{}, h.last(), "nothing is new")

	h.set("a.example", "192.0.2.2")
	s.lookAgain(t.Context())
	c := h.last()
	require.True(t, c.HasMoved)
	require.Equal(t, "a.example: 192.0.2.2", c.Name+": "+c.Answer.String())

	h.set("a.example")
	s.lookAgain(t.Context())
	c = h.last()
	require.False(t, c.HasMoved)
	require.Equal(t, "192.0.2.2, as before: no such host", c.Answer.String())
	require.Equal(t, "no such host", s.Shown()["a.example"].Problem)
	s.lookAgain(t.Context())
	require.Equal(t, Change{}, h.last(), "the problem is told once")

	delete(h.wanted, "a.example")
	h.set("a.example", "192.0.2.3")
	asked := len(h.asked)
	s.lookAgain(t.Context())
	require.Equal(t, Change{HasForgotten: true}, h.last())
	require.Empty(t, s.Shown())
	require.Len(t, h.asked, asked, "it is not looked up any more")
}

// A limit that ends during a lookup leaves no answer behind.
func TestNameIsNotWantedAnyMore(t *testing.T) {
	s, h := newSource(t)
	h.wanted["a.example"] = true
	s.opts.LookUp = func(context.Context, string) ([]netip.Addr, error) {
		h.Read(func() { clear(h.wanted) })
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
	}
	s.lookAgain(t.Context())
	require.Empty(t, s.Shown())
	require.Empty(t, h.changes)
}

// A name that an earlier daemon has found counts as known, also while it is not found. Without an address it has none.
func TestAdoptedNames(t *testing.T) {
	s, h := newSource(t)
	s.Adopt(map[string][]netip.Addr{"a.example": {netip.MustParseAddr("192.0.2.1")}, "b.example": nil})
	h.wanted["a.example"], h.wanted["b.example"] = true, true
	_, err := s.LookUpNew(t.Context(), []string{"a.example"})
	require.NoError(t, err)
	require.Empty(t, h.asked)
	_, err = s.LookUpNew(t.Context(), []string{"a.example", "b.example"})
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, api.CodeNotFound, e.Code)
	require.Contains(t, e.Hint, "getent ahosts b.example")
	s.lookAgain(t.Context())
	require.Equal(t, "no address known: no such host", s.answers["b.example"].String())
	require.Equal(t, map[string][]netip.Addr{"a.example": {netip.MustParseAddr("192.0.2.1")}, "b.example": nil}, s.Addresses([]string{"a.example", "b.example"}))
}

// What a refused request has learned is forgotten, and what was known before stays.
func TestLearnIsUndone(t *testing.T) {
	s, h := newSource(t)
	h.set("a.example", "192.0.2.1")
	h.set("b.example", "192.0.2.2")
	learn(t, s, h, "a.example")
	before := s.Shown()
	undo := learn(t, s, h, "a.example", "b.example")
	require.Len(t, s.Shown(), 2)
	undo()
	require.Equal(t, before, s.Shown())
}

func TestResolvedSelector(t *testing.T) {
	s, h := newSource(t)
	h.set("a.example", "192.0.2.1", "2001:db8::1")
	learn(t, s, h, "a.example")
	selector, _, err := destination.Parse("a.example,10.0.0.0/8")
	require.NoError(t, err)
	is := s.Resolved(selector)
	require.Equal(t, "10.0.0.0/8 192.0.2.1/32 2001:db8::1/128", fmt.Sprint(is.Prefixes[0], " ", is.Prefixes[1], " ", is.Prefixes[2]))
	require.Len(t, selector.Prefixes, 1, "it is a copy")
}

func TestLookUpRefused(t *testing.T) {
	s, h := newSource(t)
	_, err := s.LookUp(t.Context(), make([]string, mostNames+1))
	require.ErrorContains(t, err, "one limit may have 16")
	for i := range mostAddresses + 1 {
		h.list["many.example"] = append(h.list["many.example"], netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	_, err = s.LookUp(t.Context(), []string{"many.example"})
	require.ErrorContains(t, err, "65 addresses")
	h.list["none.example"] = nil
	_, err = s.LookUp(t.Context(), []string{"none.example"})
	require.ErrorContains(t, err, "has no address")
	require.Empty(t, s.Shown(), "a lookup alone is not remembered")
}

// The names are looked up at once, and at each interval.
func TestKeep(t *testing.T) {
	s, h := newSource(t)
	s.opts.Every = time.Millisecond
	h.wanted["a.example"] = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.Keep(ctx)
		close(ended)
	}()
	require.Eventually(t, func() bool {
		h.zone.Lock()
		defer h.zone.Unlock()
		return len(h.asked) > 2
	}, testutil.Soon, testutil.Poll)
	h.set("a.example", "192.0.2.1")
	require.Eventually(t, func() bool { return h.last().HasMoved }, testutil.Soon, testutil.Poll)
	cancel()
	<-ended
}

var _ Host = (*memory)(nil)
