package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

func TestShares(t *testing.T) {
	now := time.Now()
	s := &shares{now: func() time.Time { return now }, of: map[uint32]*share{}}
	take := func(who uint32, cost float64) time.Duration {
		wait, ok := s.take(who, cost)
		require.True(t, ok)
		return wait
	}
	for range auth.RequestsAtOnce {
		require.Zero(t, take(1000, 1))
	}
	require.Equal(t, time.Second/auth.RequestsPerSec, take(1000, 1))
	require.Equal(t, 2*time.Second/auth.RequestsPerSec, take(1000, 1))
	require.Zero(t, take(1001, 1), "another user has a share of their own")
	now = now.Add(time.Second)
	require.Zero(t, take(1000, auth.RequestsPerSec-2))
	s.charge(1000, auth.RequestsPerSec*auth.MaxRequestWait.Seconds())
	_, ok := s.take(1000, 1)
	require.False(t, ok, "too far off")
	now = now.Add(time.Hour)
	require.Zero(t, take(1000, auth.RequestsAtOnce), "no more is saved up")
	require.NotZero(t, take(1000, 1))
	for who := range uint32(3 * sharesKept) {
		now = now.Add(time.Minute)
		s.take(who, 1)
	}
	require.LessOrEqual(t, len(s.of), sharesKept+1)
}

func TestCost(t *testing.T) {
	for path, want := range map[string]float64{
		"/v1/nodes":                         1,
		"/v1/nodes?subject=pid:12":          1,
		"/v1/nodes?subject=unit:web":        auth.SearchCost,
		"/v1/nodes?subject=container:web":   auth.SearchCost,
		"/v1/nodes?subject=%75nit:web":      auth.SearchCost,
		"/v1/nodes?%73ubject=container:web": auth.SearchCost,
		"/v1/rules/reload":                  auth.ReloadCost,
	} {
		require.InDelta(t, want, cost(httptest.NewRequest("GET", path, nil)), 0, path)
	}
}

func TestLimited(t *testing.T) {
	var served atomic.Int32
	h := Limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = w.Write([]byte(strings.Repeat("x", 2*auth.BytesPerCount)))
	}), func(uid uint32) uint32 { return min(uid, 1000) })
	ask := func(uid uint32, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		r = r.WithContext(ctx)
		h.ServeHTTP(w, r.WithContext(auth.WithActor(r.Context(), auth.Actor{UID: uid})))
		return w
	}
	var refused atomic.Int32
	var all sync.WaitGroup
	const reloads = 30
	for i := range uint32(reloads) {
		all.Go(func() {
			w := ask(1000+i%2, "/v1/rules/reload") // both user ids count as the same user
			if w.Code != http.StatusTooManyRequests {
				return
			}
			var e api.Error
			assert.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
			assert.Equal(t, api.CodeBusy, e.Code)
			assert.NotEmpty(t, e.Hint)
			refused.Add(1)
		})
	}
	all.Wait()
	const atOnce = auth.RequestsAtOnce / auth.ReloadCost
	waited := int(auth.MaxRequestWait.Seconds()) * auth.RequestsPerSec / auth.ReloadCost
	require.InDelta(t, reloads-atOnce-waited, refused.Load(), 1)
	require.InDelta(t, atOnce, served.Load(), 1, "and others went before it was their turn")
	for range 2 * auth.RequestsAtOnce {
		require.Equal(t, http.StatusOK, ask(0, "/v1/rules/reload").Code, "root has no bound")
	}
	require.Equal(t, http.StatusOK, ask(999, "/v1/nodes").Code)
}
