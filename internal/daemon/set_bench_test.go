package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
)

// BenchmarkSet measures the daemon's part of a command that changes a limit, beside many others.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{10, 1000, 8000, 10_000} {
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

// BenchmarkSetOther measures changes that ask for more than the node: a new limit and its end, a user's own limit, a
// weight, and a guarantee inside the host's limit.
func BenchmarkSetOther(b *testing.B) {
	for name, changes := range map[string]func(h *harness, n uint64) func(i uint64) error{
		"new": func(h *harness, n uint64) func(uint64) error {
			return func(i uint64) error {
				user := api.Subject{Kind: api.KindUser, ID: fmt.Sprint(firstUser + n + i)}
				if _, err := h.Set(b.Context(), root, api.SetRequest{Subject: user, Wish: up(1e6)}); err != nil {
					return err
				}
				_, err := h.Remove(b.Context(), root, user, false)
				return err
			}
		},
		"own": func(h *harness, n uint64) func(uint64) error {
			return func(i uint64) error {
				uid := uint32(firstUser + i%n)
				_, err := h.Set(b.Context(), auth.Actor{UID: uid}, api.SetRequest{Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprint(uid)}, Wish: up(1e6 + i)})
				return err
			}
		},
		"weight": func(h *harness, n uint64) func(uint64) error {
			return func(i uint64) error {
				_, err := h.Set(b.Context(), root, api.SetRequest{Subject: userOf(i % n), Wish: api.Wish{Weight: ptr(uint32(2 + i%50))}})
				return err
			}
		},
		"beside": func(h *harness, n uint64) func(uint64) error { // a limit is changed, and a tenth of the others has a guarantee
			h.mustSet(root, "host", up(1e12))
			for i := range n / 10 {
				_, err := h.Set(b.Context(), root, api.SetRequest{Subject: userOf(10 * i), Wish: api.Wish{MinBytesPerSec: ptr(uint64(1))}})
				require.NoError(b, err)
			}
			return func(i uint64) error {
				_, err := h.Set(b.Context(), root, api.SetRequest{Subject: userOf(i % n), Wish: up(1e6 + i)})
				return err
			}
		},
		"guarantee": func(h *harness, n uint64) func(uint64) error {
			h.mustSet(root, "host", up(1e12))
			return func(i uint64) error { // a tenth has a guarantee, and each change raises one
				_, err := h.Set(b.Context(), root, api.SetRequest{Subject: userOf(10 * i % n), Wish: api.Wish{MinBytesPerSec: ptr(1 + i)}})
				return err
			}
		},
	} {
		for _, n := range []uint64{10, 8000} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				h, _ := startWith(b, int(n))
				change := changes(h, n)
				i := uint64(0)
				for b.Loop() {
					i++
					if err := change(i); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// firstUser is the first of the users in these benchmarks.
const firstUser = 1_999_100_000

func userOf(i uint64) api.Subject {
	return api.Subject{Kind: api.KindUser, ID: fmt.Sprint(firstUser + i)}
}

// startWith starts a daemon with limits on n users. The returned function changes the limit of one of them. The daemon
// has no tick meanwhile.
func startWith(b *testing.B, n int) (h *harness, set func(user, rate uint64)) {
	b.Helper()
	fake := new(enforcetest.Kernel)
	opts := testOptions(b, fake)
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Tick = time.Hour
	var passwd strings.Builder // the names of users who are in no file cost more than what is measured
	for i := range n {
		fmt.Fprintf(&passwd, "u%d:*:%d:%[2]d::/:/bin/sh\n", i, firstUser+i)
	}
	file := filepath.Join(b.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte(passwd.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	opts.Identity.Accounts = account.New(account.Options{Passwd: file, Getent: []string{"/none"}})
	h = start(b, fake, opts)
	h.mu.Lock()
	h.unpublished.check = nil // the check costs more than what is measured
	for i := range n {
		user := &node{id: h.freeID(), since: time.Now(), res: identity.Resolved{
			Subject: api.Subject{Kind: api.KindUser, ID: fmt.Sprintf("u%d", i)}, Kind: enforce.KindUser, Key: uint64(firstUser + i), UID: uint32(firstUser + i),
		}}
		user.Requested[enforce.OwnerAdmin].Up = 1
		h.keepNode(user)
	}
	h.mu.Unlock()
	set = func(user, rate uint64) {
		_, err := h.Set(b.Context(), root, api.SetRequest{Subject: userOf(user), Wish: api.Wish{UpBytesPerSec: &rate}})
		if err != nil {
			b.Fatal(err)
		}
	}
	return h, set
}
