package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// Text returns the figures in Prometheus' text format.
func Text(from prometheus.Gatherer) (string, error) {
	families, err := from.Gather()
	if err != nil {
		return "", fmt.Errorf("read what is counted: %w", err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return "", fmt.Errorf("print what is counted: %w", err)
		}
	}
	return text.String(), nil
}

// Serve serves the figures at /metrics until the context ends.
func Serve(ctx context.Context, l net.Listener, from prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // Prometheus repeats a scrape that is cut off
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
