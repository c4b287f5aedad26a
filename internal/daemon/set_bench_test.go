package daemon

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
)

// BenchmarkSet measures the daemon's part of a command that changes a limit, beside many others.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{10, 1000, 8000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, set := startWith(b, n)
			i := uint64(0)
			for b.Loop() {
				i++
				set(i%uint64(n), 1e6+i)
			}
		})
	}
}

// BenchmarkSetBesideList measures the same while another caller lists all limits again and again.
func BenchmarkSetBesideList(b *testing.B) {
	for _, n := range []int{10, 8000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h, set := startWith(b, n)
			stop, lists := make(chan struct{}), make(chan int)
			go func() {
				count := 0
				for {
					select {
					case <-stop:
						lists <- count
						return
					default:
					}
					if list, err := h.Daemon.Nodes(b.Context(), root); err != nil || len(list.Nodes) != n {
						b.Error(len(list.Nodes), err)
					}
					count++
				}
			}()
			var longest time.Duration
			i := uint64(0)
			for b.Loop() {
				i++
				began := time.Now()
				set(i%uint64(n), 1e6+i)
				longest = max(longest, time.Since(began))
			}
			close(stop)
			b.ReportMetric(float64(<-lists), "lists")
			b.ReportMetric(float64(longest.Microseconds()), "longest-us")
		})
	}
}

// startWith starts a daemon with limits on n users. The returned function changes the limit of one of them. The daemon
// has no tick meanwhile.
func startWith(b *testing.B, n int) (h *harness, set func(user, rate uint64)) {
	b.Helper()
	const first = 1_999_100_000
	fake := new(enforcetest.Kernel)
	opts := testOptions(b, fake)
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Tick = time.Hour
	h = start(b, fake, opts)
	h.mu.Lock()
	h.unpublished.check = nil // the check costs more than what is measured
	for i := range n {
		user := &node{id: h.freeID(), since: time.Now(), res: identity.Resolved{
			Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(first + i)}, Kind: enforce.KindUser, Key: uint64(first + i), UID: uint32(first + i),
		}}
		user.requested[enforce.OwnerAdmin].Up = 1
		h.keepNode(user)
	}
	h.mu.Unlock()
	set = func(user, rate uint64) {
		_, err := h.Set(b.Context(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(first + user)}, Wish: api.Wish{UpBytesPerSec: &rate}})
		if err != nil {
			b.Fatal(err)
		}
	}
	return h, set
}
