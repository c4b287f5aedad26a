package metrics

import "github.com/prometheus/client_golang/prometheus"

// Figure is one of the figures that the collector gives. docs/reference/metrics.md follows from the table of figures.
type Figure struct {
	Name string
	// IsCounter says that the figure only grows while the daemon runs. Others go up and down.
	IsCounter bool
	Help      string
	Labels    []string
	desc      *prometheus.Desc
}

// gauge makes a figure that goes up and down.
func gauge(name, help string, labels ...string) *Figure {
	f := &Figure{Name: "netnice_" + name, Help: help, Labels: labels}
	f.desc = prometheus.NewDesc(f.Name, help, labels, nil)
	return f
}

// counter makes a figure that only grows.
func counter(name, help string, labels ...string) *Figure {
	f := gauge(name, help, labels...)
	f.IsCounter = true
	return f
}

var (
	up        = gauge("up", "Whether the daemon answers.")
	build     = gauge("build_info", "The daemon's release and the kernel that it runs on.", "release", "kernel")
	faults    = counter("faults_total", "Packets or sockets that went unlimited, uses of sockets without room for state (socket_storage), and writes of the state that failed, by the reason.", "fault")
	attached  = gauge("program_attached", "Whether a kernel program of netnice's is attached.", "program")
	limits    = gauge("limit_bytes_per_second", "A limit that is set: IP bytes a second.", "subject", "name", "direction", "owner")
	bytes     = counter("bytes_total", "IP bytes sent (up) and received (down) since the limit was set, where that is counted.", "subject", "name", "direction")
	charged   = counter("charged_bytes_total", "IP bytes, sent and received, that a limit on both directions together was charged.", "subject", "name")
	waiting   = gauge("waiting_bytes", "Bytes that wait for their turn, in sockets' send buffers or in the queue.", "subject", "name", "direction")
	delay     = gauge("wait_seconds", "The longest of the waits, from now.", "subject", "name", "direction")
	queued    = gauge("queued_bytes", "What is sent, is no TCP, and is in the queue.", "subject", "name")
	dropped   = counter("dropped_packets_total", "Packets that were dropped, by the reason.", "subject", "name", "direction", "reason")
	held      = counter("held_segments_total", "First segments of new connections that were held back.", "subject", "name")
	processes = gauge("processes", "Processes that a limit holds for.", "subject", "name")
	sockets   = gauge("sockets", "TCP sockets whose traffic counts.", "subject", "name")
	stateless = gauge("stateless_sockets", "Sockets without room for state, because the memory for their options is full: their limits hold for each as a whole.", "subject", "name")
	unknown   = counter("unknown_bytes_total", "IP bytes of which no process is known, by the reason.", "direction", "reason")
)

// Figures returns the table of figures.
func Figures() []*Figure {
	return []*Figure{up, build, faults, attached, limits, bytes, charged, waiting, delay, queued, dropped, held, processes, sockets, stateless, unknown}
}

// Label is a label of figures.
type Label struct{ Name, Means string }

// Labels returns what the labels of figures mean, for people.
func Labels() []Label {
	return []Label{
		{"subject", "whom the limit is for, as `netnice ls` prints it: pid:4711, user:bob, host"},
		{"name", "the command, user or unit of the subject"},
		{"direction", "up for what the subject sends, down for what it receives, total for both together"},
		{"owner", "who has set the limit: admin, or the name of a user"},
		{"reason", "why packets were dropped, or why the owner of bytes is unknown: a field of Drops or UnknownBytes in [api.yaml](api.yaml)"},
		{"fault", "a fault counter, as `netnice status` prints it"},
		{"program", "a kernel program, as `netnice status` prints it"},
		{"release", "the version of the daemon"},
		{"kernel", "the release of Linux"},
	}
}
