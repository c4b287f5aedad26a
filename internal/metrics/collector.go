// Package metrics gives the daemon's figures to Prometheus. It asks the daemon by its API, as every command does, and
// stores nothing.
package metrics

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netnice/netnice/api"
)

// Source returns the figures, as client.Client does.
type Source interface {
	Status(ctx context.Context) (*api.Status, error)
	Nodes(ctx context.Context) (*api.NodeList, error)
}

// patience bounds the time in which the daemon must answer one scrape.
const patience = 5 * time.Second

// Collector is a prometheus.Collector of the daemon's figures. While the daemon does not answer, the collector returns
// netnice_up 0 and nothing else, because the daemon's counters are not 0 then.
type Collector struct {
	from Source
	// Private includes limits with a destination that not everybody may see, as far as the daemon tells them. Every
	// reader of the figures sees them then. It is set before the first scrape.
	Private bool

	mu  sync.Mutex
	err error // of the last scrape
}

// NewCollector returns a Collector that asks the source at each scrape.
func NewCollector(from Source) *Collector { return &Collector{from: from} }

// Err returns the error with which the daemon failed to answer the last scrape, nil if it answered.
func (c *Collector) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// ask asks the daemon for the figures of a scrape, and stores the error.
func (c *Collector) ask(ctx context.Context) (status *api.Status, list *api.NodeList, err error) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = err
	}()
	if status, err = c.from.Status(ctx); err != nil {
		return nil, nil, err
	}
	list, err = c.from.Nodes(ctx)
	return status, list, err
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range Figures() {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	give := func(f *Figure, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if f.IsCounter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(f.desc, kind, value, labels...)
	}
	status, list, err := c.ask(ctx)
	if err != nil {
		give(up, 0)
		return
	}
	give(up, 1)
	give(build, 1, status.Release, status.Kernel)
	for name, n := range status.Counters {
		give(faults, float64(n), name)
	}
	for _, p := range status.Programs {
		give(attached, truth(p.Attached), p.Name)
	}
	for direction, u := range map[api.Direction]*api.UnknownUsage{api.Up: &list.Unknown.Up, api.Down: &list.Unknown.Down} {
		give(unknown, float64(u.BytesOf.Socket), string(direction), "socket")
		give(unknown, float64(u.BytesOf.Kernel), string(direction), "kernel")
	}
	give(unknown, float64(list.Unknown.Down.BytesOf.NoSocket), string(api.Down), "no_socket")
	for i := range list.Nodes {
		n := &list.Nodes[i]
		if n.Private && (!c.Private || n.IsHidden()) { // hidden ones may all have the same labels
			continue
		}
		node(n, give)
	}
}

// node gives the figures of one node.
func node(n *api.Node, give func(f *Figure, value float64, labels ...string)) {
	who := []string{text(n.Subject.String()), text(n.Name)} // a program may call itself anything
	with := func(more ...string) []string { return append(who[:2:2], more...) }
	for _, l := range n.Limits {
		if l.Enforced {
			give(limits, float64(l.BytesPerSec), with(string(l.Direction), text(l.Owner))...)
		}
	}
	for direction, u := range map[api.Direction]*api.Usage{api.Up: &n.Up, api.Down: &n.Down} {
		to := with(string(direction))
		if !u.Uncounted {
			give(bytes, float64(u.Bytes), to...)
		}
		give(waiting, float64(u.WaitingBytes), to...)
		give(delay, (time.Duration(u.WaitNS) * time.Nanosecond).Seconds(), to...)
		for reason, n := range map[string]uint64{
			"queue_full": u.DroppedFor.QueueFull, "no_queue": u.DroppedFor.NoQueue, "ahead_of_limit": u.DroppedFor.Ahead,
		} {
			give(dropped, float64(n), with(string(direction), reason)...)
		}
	}
	if n.Total != nil {
		give(charged, float64(n.Total.Bytes), who...)
	}
	give(queued, float64(n.Up.QueuedBytes), who...)
	give(held, float64(n.Up.Held), who...)
	give(processes, float64(n.Processes), who...)
	give(sockets, float64(n.Sockets), who...)
	give(stateless, float64(n.StatelessSockets), who...)
}

// text returns a label that Prometheus accepts and that is safe to show on a terminal.
func text(label string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(label, "?"))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
