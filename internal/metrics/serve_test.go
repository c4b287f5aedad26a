package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// idle is a daemon without limits.
type idle struct{}

func (idle) Status(context.Context) (*api.Status, error)  { return &api.Status{}, nil }
func (idle) Nodes(context.Context) (*api.NodeList, error) { return &api.NodeList{}, nil }

// The server sends the same text as the command prints, and serving ends with the context.
func TestServe(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(idle{}))
	text, err := Text(registry)
	require.NoError(t, err)
	require.Contains(t, text, "netnice_up 1\n")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, registry) }()
	answer, err := http.Get("http://" + l.Addr().String() + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, text, string(body))
	cancel()
	require.NoError(t, <-ended)
}
