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

var (
	subject = []string{"subject", "name"}

	up        = desc("up", "Whether the daemon answers.")
	build     = desc("build_info", "The daemon's release and the kernel that it runs on.", "release", "kernel")
	faults    = desc("faults_total", "Packets or sockets that went unlimited, and writes of the state that failed, by the reason.", "fault")
	attached  = desc("program_attached", "Whether a kernel program of netnice's is attached.", "program")
	limits    = desc("limit_bytes_per_second", "A limit that is set: IP bytes a second.", "subject", "name", "direction", "owner")
	bytes     = desc("bytes_total", "IP bytes sent (up) and received (down) since the limit was set, where that is counted.", "subject", "name", "direction")
	charged   = desc("charged_bytes_total", "IP bytes, sent and received, that a limit on both directions together was charged.", subject...)
	waiting   = desc("waiting_bytes", "Bytes that wait for their turn, in sockets' send buffers or in the queue.", "subject", "name", "direction")
	delay     = desc("wait_seconds", "The longest of the waits, from now.", "subject", "name", "direction")
	queued    = desc("queued_bytes", "What is sent, is no TCP, and is in the queue.", subject...)
	dropped   = desc("dropped_packets_total", "Packets that were dropped, by the reason.", "subject", "name", "direction", "reason")
	held      = desc("held_segments_total", "First segments of new connections that were held back.", subject...)
	processes = desc("processes", "Processes that a limit holds for.", subject...)
	sockets   = desc("sockets", "TCP sockets whose traffic counts.", subject...)
	unknown   = desc("unknown_bytes_total", "IP bytes of which no process is known, by the reason.", "direction", "reason")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("netnice_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{up, build, faults, attached, limits, bytes, charged, waiting, delay, queued, dropped, held, processes, sockets, unknown} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	status, list, err := c.ask(ctx)
	if err != nil {
		gauge(up, 0)
		return
	}
	gauge(up, 1)
	gauge(build, 1, status.Release, status.Kernel)
	for name, n := range status.Counters {
		count(faults, n, name)
	}
	for _, p := range status.Programs {
		gauge(attached, truth(p.Attached), p.Name)
	}
	for direction, u := range map[api.Direction]*api.UnknownUsage{api.Up: &list.Unknown.Up, api.Down: &list.Unknown.Down} {
		count(unknown, u.BytesOf.Socket, string(direction), "socket")
		count(unknown, u.BytesOf.Kernel, string(direction), "kernel")
	}
	count(unknown, list.Unknown.Down.BytesOf.NoSocket, string(api.Down), "no_socket")
	for i := range list.Nodes {
		n := &list.Nodes[i]
		if n.Private && (!c.Private || n.IsHidden()) { // hidden ones may all have the same labels
			continue
		}
		node(n, gauge, count)
	}
}

type add[T any] func(d *prometheus.Desc, value T, labels ...string)

func node(n *api.Node, gauge add[float64], count add[uint64]) {
	who := []string{text(n.Subject.String()), text(n.Name)} // a program may call itself anything
	with := func(more ...string) []string { return append(who[:2:2], more...) }
	for _, l := range n.Limits {
		if l.Enforced {
			gauge(limits, float64(l.BytesPerSec), with(string(l.Direction), text(l.Owner))...)
		}
	}
	for direction, u := range map[api.Direction]*api.Usage{api.Up: &n.Up, api.Down: &n.Down} {
		to := with(string(direction))
		if !u.Uncounted {
			count(bytes, u.Bytes, to...)
		}
		gauge(waiting, float64(u.WaitingBytes), to...)
		gauge(delay, (time.Duration(u.WaitNS) * time.Nanosecond).Seconds(), to...)
		for reason, n := range map[string]uint64{
			"queue_full": u.DroppedFor.QueueFull, "no_queue": u.DroppedFor.NoQueue, "ahead_of_limit": u.DroppedFor.Ahead,
		} {
			count(dropped, n, with(string(direction), reason)...)
		}
	}
	if n.Total != nil {
		count(charged, n.Total.Bytes, who...)
	}
	gauge(queued, float64(n.Up.QueuedBytes), who...)
	count(held, n.Up.Held, who...)
	gauge(processes, float64(n.Processes), who...)
	gauge(sockets, float64(n.Sockets), who...)
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
