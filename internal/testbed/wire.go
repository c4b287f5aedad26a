package testbed

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Mode is the kind of work that a sender does on its connections.
type Mode string

// The modes of a sender.
const (
	Bulk    Mode = "bulk"    // write WriteSize again and again, up to Bytes if set
	BigSend Mode = "bigsend" // one blocking write of Bytes (1 GB if 0) per connection
	Request Mode = "request" // send RequestBytes, wait for ReplyBytes, pause, again
	Short   Mode = "short"   // connect, send ShortBytes, close, again
)

// SenderConfig configures a sender. The zero value of every field except To has a meaning, given with it.
type SenderConfig struct {
	To          string `json:"to"`          // the receiver's address:port
	Connections int    `json:"connections"` // in parallel; 0 = 1
	Congestion  string `json:"congestion"`  // "cubic", "bbr", "reno"; "" = the namespace's default
	Mode        Mode   `json:"mode"`        // "" = Bulk

	// UpToBytesPerSec is the rate at which all bulk connections together write where no limit binds them; 0 = as
	// fast as the machine can.
	UpToBytesPerSec float64 `json:"up_to_bytes_per_sec"`

	WriteSize int   `json:"write_size"` // bytes per write; 0 = 64 KB
	Bytes     int64 `json:"bytes"`      // per connection, then it closes and drains; 0 = endless

	RequestBytes int           `json:"request_bytes"` // 0 = 600
	ReplyBytes   int           `json:"reply_bytes"`   // 0 = 100; the receiver's Port must say the same
	Pause        time.Duration `json:"pause"`         // between a reply and the next request; 0 = none

	ShortBytes int  `json:"short_bytes"` // 0 = 13000
	ShortWait  bool `json:"short_wait"`  // wait until the receiver has read everything before the next one

	// UID, if not 0, is the user (and group) that the process runs as.
	UID uint32 `json:"uid"`
}

func (c SenderConfig) withDefaults() SenderConfig {
	setDefault(&c.Connections, 1)
	setDefault(&c.Mode, Bulk)
	setDefault(&c.WriteSize, 64<<10)
	setDefault(&c.RequestBytes, 600)
	setDefault(&c.ReplyBytes, 100)
	setDefault(&c.ShortBytes, 13000)
	if c.Mode == BigSend {
		setDefault(&c.Bytes, 1<<30)
		c.WriteSize = int(c.Bytes)
	}
	return c
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Port is a port that a receiver listens on. The receiver discards data: it counts the payload and never copies it
// out of the kernel.
type Port struct {
	Number       uint16 `json:"number"`
	RequestBytes int    `json:"request_bytes"` // 0 = only read; else answer each that many bytes...
	ReplyBytes   int    `json:"reply_bytes"`   // ...with that many
}

// ReceiverConfig configures a receiver.
type ReceiverConfig struct {
	Ports    []Port        `json:"ports"`    // none = port 5001, only reading
	Interval time.Duration `json:"interval"` // interval of samples; 0 = 50 ms
	UID      uint32        `json:"uid"`      // if not 0, the user that the process runs as
	// Cgroup, if not "", is the folder of a cgroup v2 that the process joins
	// before it makes a socket.
	Cgroup string `json:"cgroup"`
}

func (c ReceiverConfig) withDefaults() ReceiverConfig {
	if len(c.Ports) == 0 {
		c.Ports = []Port{{Number: DefaultPort}}
	}
	setDefault(&c.Interval, 50*time.Millisecond)
	return c
}

// DefaultPort is the port of a receiver whose configuration names none.
const DefaultPort = 5001

// maxTracked bounds the connections of a receiver that have counters of their
// own; later ones count only for their port. It keeps samples short.
const maxTracked = 256

// SenderReport is the report of a sender when it stops.
type SenderReport struct {
	PID        int            `json:"pid"`
	Started    Instant        `json:"started"`
	Stopped    Instant        `json:"stopped"`
	Conns      []ConnInfo     `json:"conns"`       // without short connections
	Completed  int            `json:"completed"`   // requests or short connections
	Failed     int            `json:"failed"`      // short connections that ended in an error
	Written    int64          `json:"written"`     // payload that the kernel has taken
	CPUSeconds float64        `json:"cpu_seconds"` // since Start, of this process alone
	Children   []SenderReport `json:"children,omitempty"`
}

// Retransmits adds up the retransmitted segments of the sender's connections
// and its children's.
func (r SenderReport) Retransmits() int {
	n := 0
	for _, c := range r.Conns {
		n += int(c.Retransmits)
	}
	for _, child := range r.Children {
		n += child.Retransmits()
	}
	return n
}

// AllConns returns the connections of the sender and of its children.
func (r SenderReport) AllConns() []ConnInfo {
	out := r.Conns[:len(r.Conns):len(r.Conns)]
	for _, child := range r.Children {
		out = append(out, child.AllConns()...)
	}
	return out
}

// TotalCPU adds up the CPU seconds of the sender and of its children.
func (r SenderReport) TotalCPU() float64 {
	s := r.CPUSeconds
	for _, child := range r.Children {
		s += child.TotalCPU()
	}
	return s
}

// The orders that a traffic process takes on its standard input.
const (
	doConfigure = "configure" // the first
	doConnect   = "connect"
	doStart     = "start" // connects too, if necessary
	doGrow      = "grow"  // opens more connections and sends over them, too
	doFork      = "fork"  // starts a child process that is another sender, and its traffic
	doInfo      = "info"
	doStop      = "stop"
)

// order is one line to a traffic process.
type order struct {
	Do       string          `json:"do"`
	More     int             `json:"more,omitempty"` // connections, for grow
	Sender   *SenderConfig   `json:"sender,omitempty"`
	Receiver *ReceiverConfig `json:"receiver,omitempty"`
}

// A traffic process writes these reports to its standard output. One report of the same name answers each order.
const (
	sawReady  = "ready"  // after configure
	sawError  = "error"  // the last one
	sawSample = "sample" // unasked, from a receiver
	sawConn   = "conn"   // unasked, from a receiver
	sawPoints = "points" // unasked, from a sender
	sawDone   = "done"   // unasked, from a sender whose Bytes are all written
)

// report is one line from a traffic process.
type report struct {
	Saw     string        `json:"saw"`
	T       Instant       `json:"t,omitempty"`
	PID     int           `json:"pid,omitempty"`
	Error   string        `json:"error,omitempty"`
	Conn    *Conn         `json:"conn,omitempty"`
	Sample  *Sample       `json:"sample,omitempty"`
	RTT     []Point       `json:"rtt,omitempty"`     // smoothed round trips of the connections
	Latency []Point       `json:"latency,omitempty"` // requests and short connections
	Conns   []ConnInfo    `json:"conns,omitempty"`
	Final   *SenderReport `json:"final,omitempty"`
	CPU     float64       `json:"cpu,omitempty"`
}

// wire reads and writes lines of JSON; writing is safe for concurrent use.
type wire struct {
	in  *json.Decoder
	mu  sync.Mutex
	out *json.Encoder
}

func newWire(in io.Reader, out io.Writer) *wire {
	return &wire{in: json.NewDecoder(in), out: json.NewEncoder(out)}
}

func (w *wire) write(v any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(v)
}

// configure reads the first order.
func (w *wire) configure() (order, error) {
	var o order
	if err := w.in.Decode(&o); err != nil {
		return o, fmt.Errorf("read configuration: %w", err)
	}
	if o.Do != doConfigure {
		return o, fmt.Errorf("first order is %q, not %q", o.Do, doConfigure)
	}
	return o, nil
}
