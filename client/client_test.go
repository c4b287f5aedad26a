package client_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/client/clienttest"
)

// serve answers on a unix socket of its own and returns its path.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(h)
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return path
}

func TestNoDaemon(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	_, err := client.New(missing).Status(t.Context())
	require.ErrorIs(t, err, client.ErrNoDaemon)
	require.ErrorContains(t, err, missing)

	// A socket that its daemon left behind.
	stale := filepath.Join(t.TempDir(), "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	_, err = client.New(stale).Status(t.Context())
	require.ErrorIs(t, err, client.ErrNoDaemon)
}

func TestDaemonDiesWhileAnswering(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	_, err := client.New(path).Set(t.Context(), api.SetRequest{})
	require.ErrorIs(t, err, client.ErrNoDaemon)
}

func TestErrorsAreTheDaemons(t *testing.T) {
	want := &api.Error{Code: api.CodeDenied, Message: "no", Hint: "sudo netnice set"}
	path := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(want)
	})
	_, err := client.New(path).Unset(t.Context(), api.Subject{Kind: api.KindHost}, false)
	var got *api.Error
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, got)
}

func TestStrangeAnswers(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/status" {
			http.Error(w, "who are you", http.StatusTeapot)
			return
		}
		_, _ = w.Write([]byte("not json"))
	})
	c := client.New(path)
	_, err := c.Status(t.Context())
	var got *api.Error
	require.ErrorAs(t, err, &got)
	require.Contains(t, got.Message, "who are you")
	_, err = c.Nodes(t.Context())
	require.ErrorContains(t, err, "read the daemon's answer")
	require.NotErrorIs(t, err, client.ErrNoDaemon)
}

func TestDeadline(t *testing.T) {
	release := make(chan struct{})
	path := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client.New(path).Nodes(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAgainstFakeDaemon(t *testing.T) {
	daemon := clienttest.New()
	c := client.New(serve(t, daemon.ServeHTTP))
	defer c.Close()
	ctx := t.Context()
	bob, rate := api.Subject{Kind: api.KindUser, ID: "bob"}, uint64(1e6)

	_, err := c.NodesFor(ctx, bob)
	var missing *api.Error
	require.ErrorAs(t, err, &missing)
	require.Equal(t, api.CodeNoLimit, missing.Code)

	request := api.SetRequest{Subject: bob, Wish: api.Wish{UpBytesPerSec: &rate}, DryRun: true}
	answer, err := c.Set(ctx, request)
	require.NoError(t, err)
	require.True(t, answer.Changed)
	list, err := c.Nodes(ctx)
	require.NoError(t, err)
	require.Empty(t, list.Nodes)

	request.DryRun = false
	_, err = c.Set(ctx, request)
	require.NoError(t, err)
	list, err = c.NodesFor(ctx, bob)
	require.NoError(t, err)
	require.Len(t, list.Nodes, 1)
	require.Equal(t, bob, list.Nodes[0].Subject)
	require.Equal(t, rate, list.Nodes[0].Limits[0].BytesPerSec)

	status, err := c.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, status.Nodes)

	_, err = c.Unset(ctx, bob, true)
	require.NoError(t, err)
	_, err = c.Unset(ctx, bob, false)
	require.NoError(t, err)
	_, err = c.Unset(ctx, bob, false)
	require.ErrorAs(t, err, &missing)

	require.NoError(t, c.Down(ctx))
	require.True(t, daemon.IsDown())
}
