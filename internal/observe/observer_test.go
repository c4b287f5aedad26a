package observe

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/testutil"
)

// Callers share a reading of the kernel side, until something has changed.
func TestFiguresAreShared(t *testing.T) {
	h := newHarness(t)
	for range 10 {
		_, err := h.Figures()
		require.NoError(t, err)
	}
	require.LessOrEqual(t, h.mem.calls, 2)
	before := h.mem.calls
	h.Outdate()
	_, err := h.Figures()
	require.NoError(t, err)
	require.Equal(t, before+1, h.mem.calls)
}

// A reading that was under way as something changed is not used for the next caller.
func TestFiguresThatWereOutdatedMeanwhile(t *testing.T) {
	h := newHarness(t)
	stuck := make(chan struct{})
	h.mem.stuck = stuck
	first := make(chan error)
	go func() {
		_, err := h.Figures()
		first <- err
	}()
	require.Eventually(t, func() bool { return h.mem.waiting.Load() == 1 }, soon, time.Millisecond)
	returnsSoon(t, "who changes something", h.Outdate)
	h.mem.count(3, enforce.NodeStats{Bytes: 7})
	h.mem.mu.Lock()
	h.mem.stuck = nil
	h.mem.mu.Unlock()
	close(stuck)
	require.NoError(t, <-first)
	now, err := h.Figures()
	require.NoError(t, err)
	require.EqualValues(t, 7, now.Nodes[3].Bytes)
	require.Equal(t, 2, h.mem.calls)
}

// Neither readers that are slow, nor one that does not read its events, delay who publishes.
func TestReadersDelayNobody(t *testing.T) {
	h := newHarness(t)
	h.publish(onUser(1, 1000, 1e6))
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan struct{})
	readers.Go(func() {
		_ = h.Events(ctx, root, func() {}, api.Event{Type: api.EventHello}, func([]api.Event) error { // cancel ends it
			close(sent)
			<-ctx.Done()
			return ctx.Err()
		})
	})
	<-sent
	stuck := make(chan struct{})
	h.mem.mu.Lock()
	h.mem.stuck = stuck
	h.mem.mu.Unlock()
	readers.Go(func() { _, _ = h.Nodes(root) }) // the answers do not matter
	readers.Go(func() { _, _ = h.Why(t.Context(), root, os.Getpid(), -1, time.Millisecond) })
	readers.Go(func() { _ = h.Tick() })
	require.Eventually(t, func() bool { return h.mem.waiting.Load() == 3 }, soon, time.Millisecond)
	returnsSoon(t, "who publishes", func() {
		for i := range uint64(1000) {
			h.publish(onUser(1, 1000, i))
			h.TellChange(h.Snapshot().Node(1), h.Snapshot().Node(1), "admin")
		}
	})
	close(stuck)
	cancel()
	readers.Wait()
}

// Lists that are made while nodes change, come and go are each of one moment.
func TestListsBesideChanges(t *testing.T) {
	const nodes = 2000
	h := newHarness(t)
	var all []*Node
	for id := range uint32(nodes) {
		all = append(all, onUser(id+1, 100000+id, 1))
	}
	h.publish(all...)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				list, err := h.Nodes(root)
				if err != nil || len(list.Nodes) != nodes {
					t.Errorf("%d nodes: %v", len(list.Nodes), err)
				}
				_, _ = h.NodesFor(ctx, root, all[0].Subject) // the answer does not matter
			}
		})
	}
	for i := range uint32(500) {
		id := 1 + i*7%nodes
		if i%2 == 0 {
			h.publish(onUser(id, 100000+id-1, uint64(i)))
			continue
		}
		h.Publish(h.Snapshot().With(map[uint32]*Node{id: nil, nodes + i: onUser(nodes+i, 200000+i, 1)}, nil))
		h.Publish(h.Snapshot().With(map[uint32]*Node{nodes + i: nil, id: onUser(id, 100000+id-1, 1)}, nil))
	}
	cancel()
	readers.Wait()
}

// A rate is computed from the time at which a node came, and from the last two ticks.
func TestRatesSinceANodeCame(t *testing.T) {
	began := time.Now()
	at := func(seconds int, bytes uint64) *reading {
		return &reading{at: began.Add(time.Duration(seconds) * time.Second), nodes: map[uint32]point{1: {bytes: bytes}}}
	}
	first, second := at(1, 100), at(2, 300)
	now := point{at: began.Add(3 * time.Second), bytes: 700}
	rate := func(r readings, countsFrom time.Time) uint64 {
		return r.of(&Node{ID: 1, CountsFrom: countsFrom}).rates(now, 500*time.Millisecond).up
	}
	require.EqualValues(t, 400, rate(readings{second, first}, time.Time{}))
	require.EqualValues(t, 400, rate(readings{second, first}, began))
	require.EqualValues(t, 400, rate(readings{second, first}, began.Add(1500*time.Millisecond)), "it came between them")
	require.EqualValues(t, 1400, rate(readings{second, first}, began.Add(2500*time.Millisecond)), "it came after both")
	require.Zero(t, rate(readings{}, time.Time{}), "nothing is known of a node from before")
	now.at = second.at.Add(400 * time.Millisecond)
	require.EqualValues(t, 428, rate(readings{second, first}, began), "the second is too fresh")
}

// A list shows the counters, and their rates after a tick.
func TestListOfFigures(t *testing.T) {
	h := newHarness(t)
	n := onUser(7, 1000, 1e6)
	h.publish(n)
	h.mem.count(7, enforce.NodeStats{Bytes: 1000})
	require.NoError(t, h.Tick())
	got := h.nodes(root)
	require.Len(t, got, 1)
	require.EqualValues(t, 1000, got[0].Up.Bytes)
	require.EqualValues(t, 1e6, got[0].Limits[0].BytesPerSec)
	require.False(t, got[0].Up.Uncounted)
	list, err := h.NodesFor(t.Context(), root, n.Subject)
	require.NoError(t, err)
	require.Equal(t, []uint32{7}, slices.Collect(func(yield func(uint32) bool) {
		for _, n := range list.Nodes {
			if !yield(n.ID) {
				return
			}
		}
	}))
	h.lift(7)
	require.Empty(t, h.nodes(root))
	_, err = h.NodesFor(t.Context(), root, n.Subject)
	testutil.RequireCode(t, api.CodeNoLimit, err)
}
