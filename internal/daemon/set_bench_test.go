package daemon

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// BenchmarkSet measures the daemon's part of a command that changes a limit, beside many others.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{10, 1000, 8000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fake := new(enforcetest.Kernel)
			opts := testOptions(b, fake)
			opts.Logger = slog.New(slog.DiscardHandler)
			opts.Tick = time.Second
			h := start(b, fake, opts)
			set := func(user, rate uint64) {
				_, err := h.Set(b.Context(), root, api.SetRequest{Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(1_999_100_000 + user)}, Wish: api.Wish{UpBytesPerSec: &rate}})
				if err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				set(uint64(i), 1e6)
			}
			i := uint64(0)
			for b.Loop() {
				i++
				set(i%uint64(n), 1e6+i)
			}
		})
	}
}
