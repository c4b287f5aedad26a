package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/observe"
)

// heardBy collects the events for one caller, until the test ends.
type heardBy struct {
	mu   sync.Mutex
	list []api.Event
	err  chan error
}

func (h *harness) hear(by auth.Actor) *heardBy {
	h.t.Helper()
	r := &heardBy{err: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(func() {
		cancel()
		require.Error(h.t, <-r.err)
	})
	go func() {
		r.err <- h.Events(ctx, by, func() {}, func(list []api.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.list = append(r.list, list...)
			return nil
		})
	}()
	h.eventually("hello", func() bool { return len(r.types()) > 0 })
	return r
}

func (r *heardBy) types() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		list = append(list, string(e.Type))
	}
	return list
}

// last returns the last event of a type.
func (r *heardBy) last(t api.EventType) (last api.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		if e.Type == t {
			last = e
		}
	}
	return last
}

// Listeners learn of each limit that is set, changed or lifted, with the limits that result. Users learn of those that
// concern them.
func TestEventsOfLimits(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	proc := sleeper(t)
	own := uint32(os.Getuid()) // the user of the process
	stranger := auth.Actor{UID: own + 77}
	all, other := h.hear(root), h.hear(stranger)

	h.mustSet(root, pidSubject(proc), up(1e6))
	h.mustSet(root, pidSubject(proc), up(1e6)) // unchanged
	h.mustSet(root, pidSubject(proc), up(2e6))
	_, err := h.set(root, pidSubject(proc), up(0))
	require.NoError(t, err)
	h.mustSet(root, "user:4000077", up(1e6))
	h.mustSet(root, "host", up(3e6))
	h.mustSet(stranger, "user:"+itoa(stranger.UID), up(1e6))
	node := h.mustSet(root, pidSubject(proc), up(5e6))
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	end(proc)
	h.eventually("it ends", func() bool { return all.last(api.EventLimitEnded).Node == node.ID })
	require.Equal(t, "hello limit_set limit_changed limit_lifted limit_set limit_set limit_set limit_set limit_ended", strings.Join(all.types(), " "))
	require.Equal(t, "hello limit_set limit_set", strings.Join(other.types(), " "), "the host's and their own")
	require.Equal(t, uint64(2e6), all.last(api.EventLimitLifted).Limits[0].BytesPerSec)
	require.Equal(t, "admin", all.last(api.EventLimitLifted).By)
	require.Equal(t, pidSubject(proc), all.last(api.EventLimitEnded).Subject.String())
	require.Equal(t, 1, all.last(api.EventLimitSet).Processes)
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// The daemon notices queues and drops at the tick; it reports continuing drops once.
func TestEventsOfTraffic(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	all := h.hear(root)
	node := h.mustSet(root, "host", up(1e6))
	calls := fake.Calls("Queues")
	h.eventually("a look", func() bool { return fake.Calls("Queues") > calls+1 })
	fake.SetQueues(enforce.Queue{Direction: enforce.Up, Netns: 7})
	h.eventually("made", func() bool { return all.last(api.EventQueueMade).Netns == 7 })
	stats := enforce.NodeStats{ID: node.ID}
	for n := uint64(5); n < 9; n++ {
		stats.Datagrams.Dropped.NoQueue = n
		fake.SetStats(stats)
		calls := fake.Calls("Stats")
		h.eventually("a look", func() bool { return fake.Calls("Stats") > calls+1 })
	}
	fake.SetQueues()
	h.eventually("gone", func() bool { return all.last(api.EventQueueGone).Netns == 7 })
	require.Equal(t, "hello limit_set queue_made drops_began queue_gone", strings.Join(all.types(), " "))
	require.Equal(t, &api.Drops{NoQueue: 5}, all.last(api.EventDropsBegan).Drops)
	require.Equal(t, api.Up, all.last(api.EventDropsBegan).Direction)
}

// Over the socket, events arrive at once, also after more time than a call may take. A client that does not read does
// not delay the end of the daemon, and does not keep an on-demand daemon from leaving.
func TestEventsByHTTP(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.OnDemand = true
	h := start(t, fake, opts)
	deaf, err := net.Dial("unix", opts.SocketPath)
	require.NoError(t, err)
	defer deaf.Close()
	_, err = deaf.Write([]byte("GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"))
	require.NoError(t, err)

	c := client.New(opts.SocketPath)
	defer c.Close()
	got := make(chan api.Event, 10000)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Events(context.Background(), func(e api.Event) error {
			got <- e
			return nil
		})
	}()
	next := func() api.EventType {
		select {
		case e := <-got:
			return e.Type
		case <-time.After(soon):
			return "(none)"
		}
	}
	require.Equal(t, api.EventHello, next())
	h.mustSet(root, "host", up(1e6))
	require.Equal(t, api.EventLimitSet, next())
	for range 3000 { // more than the socket of the client that does not read takes
		h.observe.Tell(observe.Everybody(), api.Event{Type: api.EventLimitFailed, Message: strings.Repeat("x", 1000)})
	}
	begin := time.Now()
	_, err = h.set(root, "host", up(0))
	require.NoError(t, err)
	require.NoError(t, h.wait(), "it leaves, since nobody needs it")
	require.Less(t, time.Since(begin), 4*time.Second)
	require.True(t, errors.Is(<-ended, client.ErrNoDaemon))
	var last api.Event
	for len(got) > 0 {
		last = <-got
	}
	require.Equal(t, api.EventDaemonLeaves, last.Type)
	require.False(t, last.LimitsStay)
}
