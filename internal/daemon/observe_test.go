package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// A reader does not wait for a writer: no question takes the lock on the desired state.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	subject := h.mustSet(root, pidSubject(proc), up(1e6)).Subject
	h.mu.Lock()
	defer h.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx := context.Background()
		list, err := h.Daemon.Nodes(ctx, root)
		if err != nil || len(list.Nodes) != 1 {
			t.Error("list:", list.Nodes, err)
		}
		if list, err = h.Daemon.NodesFor(ctx, root, subject); err != nil || len(list.Nodes) != 1 {
			t.Error("list of one:", list.Nodes, err)
		}
		if _, err = h.Why(ctx, root, proc.Process.Pid, -1, time.Millisecond); err != nil {
			t.Error("why:", err)
		}
		if _, err = h.Rules(ctx, root); err != nil {
			t.Error("rules:", err)
		}
		ctx, cancel := context.WithCancel(ctx)
		_ = h.Events(ctx, root, func() {}, func([]api.Event) error { // cancel ends it
			cancel()
			return nil
		})
	}()
	select {
	case <-done:
	case <-time.After(soon):
		t.Error("a question waits for the lock on the desired state")
	}
}

// A change that was answered is in the next list, also if the reading of the figures is an earlier one. So is one that
// an event has told.
func TestAnsweredChangesAreListed(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	events := make(chan api.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Events(ctx, root, func() {}, func(list []api.Event) error { // cancel ends it
			for _, e := range list {
				if e.Type == api.EventLimitSet || e.Type == api.EventLimitChanged {
					list, err := h.Daemon.Nodes(ctx, root)
					if err != nil || len(list.Nodes) != 1 || list.Nodes[0].Limits[0].BytesPerSec < e.Limits[0].BytesPerSec {
						t.Error("told, and not listed:", e.Limits[0].BytesPerSec, list.Nodes, err)
					}
				}
				events <- e
			}
			return nil
		})
	}()
	require.Equal(t, api.EventHello, (<-events).Type)
	for rate := uint64(1); rate <= 100; rate++ {
		h.mustSet(root, "host", up(rate))
		list, err := h.Daemon.Nodes(t.Context(), root)
		require.NoError(t, err)
		require.EqualValues(t, rate, list.Nodes[0].Limits[0].BytesPerSec)
	}
	for range 100 {
		<-events
	}
	cancel()
	<-ended
}
