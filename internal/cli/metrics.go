package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/metrics"
)

func (a *App) metrics() *cobra.Command {
	var listen, output string
	var destinations bool
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print what is counted for Prometheus, or serve it",
		Long: `Print limits, rates, waits and drops in Prometheus' text format; with --listen
serve them at http://ADDRESS/metrics until interrupted, with --output write them to
a file, which whoever reads it finds whole: the one before, or the new one. It asks
the daemon, as every command does, so it may run as any user, and needs no rights
to serve.

Whoever reads the figures is not known. So limits whose destination not everybody may see
(netnice ls) are left out, unless --destinations asks for those that the caller may see.`,
		Example: `  netnice metrics --output /var/lib/node_exporter/netnice.prom
  netnice metrics --listen 127.0.0.1:9435`,
		Args: between(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			counted := func(from metrics.Source) (*prometheus.Registry, *metrics.Collector) {
				registry, collector := prometheus.NewRegistry(), metrics.NewCollector(from)
				collector.Private = destinations
				registry.MustRegister(collector)
				return registry, collector
			}
			if listen == "" {
				return a.read(cmd.Context(), func(_ context.Context, c *client.Client) error {
					registry, collector := counted(c)
					return a.writeMetrics(output, registry, collector.Err)
				})
			}
			c := client.New(a.socket)
			defer c.Close()
			registry, _ := counted(c)
			return a.serveMetrics(cmd.Context(), listen, registry)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "serve at this `address`, such as 127.0.0.1:9435")
	cmd.Flags().StringVar(&output, "output", "", "write to this `file`, in one step")
	cmd.MarkFlagsMutuallyExclusive("listen", "output")
	cmd.Flags().BoolVar(&destinations, "destinations", false, "also limits whose destination not everybody may see")
	return cmd
}

// writeMetrics writes the figures to a file, or prints them without a name. If the function answered returns an error,
// because the daemon did not answer, the file stays as it is.
func (a *App) writeMetrics(file string, from prometheus.Gatherer, answered func() error) error {
	text, err := metrics.Text(from)
	if err := answered(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if file == "" {
		if _, err := io.WriteString(a.Out, text); err != nil {
			return fmt.Errorf("print what is counted: %w", err)
		}
		return nil
	}
	// The new file is in the same folder, so that it can be renamed, and is on the disk before that.
	if err := renameio.WriteFile(file, []byte(text), 0o644, renameio.WithTempDir(filepath.Dir(file))); err != nil {
		return failWith(exitFailed, "--output takes a file in a folder that may be written to", "write %s: %v", file, err)
	}
	return nil
}

func (a *App) serveMetrics(ctx context.Context, address string, from prometheus.Gatherer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return failWith(exitFailed, "give an address of this machine and a free port, such as --listen 127.0.0.1:9435", "%v", err)
	}
	fmt.Fprintf(a.Err, "netnice: http://%s/metrics\n", l.Addr())
	if err := metrics.Serve(ctx, l, from); err != nil {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	return nil
}
