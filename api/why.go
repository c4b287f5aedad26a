package api

// Why answers GET /v1/why: it says what bounds the connections of a process, from samples over a while.
type Why struct {
	Version string `json:"version"` // the version of the API
	PID     int    `json:"pid"`     // the process of the request
	Name    string `json:"name"`    // its command
	OverNS  uint64 `json:"over_ns"` // the length of the measurement
	Looks   int    `json:"looks"`   // the number of samples
	// Processes are those whose connections were sampled: the process of the request, and then its descendants, parents
	// first. A request with a file descriptor has the process alone.
	Processes []WhyProcess `json:"processes"`
	// HiddenProcesses is the number of descendants that were left out, because the caller may not ask about them.
	HiddenProcesses int `json:"hidden_processes,omitempty"`
	// Sockets are those that a limit applies to, among the sockets that the processes have open or have closed with
	// unsent data.
	Sockets []WhySocket `json:"sockets"`
	// Free is the number of their open sockets that no limit applies to, unix sockets included.
	Free int `json:"free"`
	// Notes are effects on these sockets that the caller may not expect, with what helps.
	Notes []string `json:"notes,omitempty"`
	// Packet is how many of these are packet sockets: their traffic may bypass the limits.
	Packet int `json:"packet,omitempty"`
}

// WhyProcess is a process whose connections were sampled.
type WhyProcess struct {
	PID  int    `json:"pid"`  // the process
	Name string `json:"name"` // its command
}

// WhySocket is one socket, and the limits on its path.
type WhySocket struct {
	// Process has the socket open: it is the first one of Why.Processes that has. If none has, it used the socket last.
	Process  int    `json:"process"`
	FDs      []int  `json:"fds"`              // the file descriptors of that process; empty: closed and draining, or not yet accepted
	Protocol string `json:"protocol"`         // the protocol: tcp, udp and the like
	Local    string `json:"local"`            // the local address and port
	Remote   string `json:"remote,omitempty"` // the address and port of the other end
	// PID is the process that the socket is charged to: the one that used it last.
	PID      int  `json:"pid"`
	Loopback bool `json:"loopback,omitempty"` // whether the traffic stays on the machine
	// SentBytesPerSec and ReceivedBytesPerSec are IP bytes per second over the time of the measurement; nil where the
	// kernel does not count them (UDP and the like).
	SentBytesPerSec     *uint64 `json:"sent_bytes_per_sec,omitempty"`
	ReceivedBytesPerSec *uint64 `json:"received_bytes_per_sec,omitempty"`
	WaitingBytes        uint64  `json:"waiting_bytes"` // the bytes in its send buffer, not sent yet
	WaitNS              uint64  `json:"wait_ns"`       // the time until its next departure

	Limits []WhyLimit `json:"limits"` // the limits, innermost first
	Up     Verdict    `json:"up"`     // what bounds the sent traffic
	Down   Verdict    `json:"down"`   // what bounds the received traffic
}

// Verdict says what bounds one direction of a socket.
type Verdict string

// The verdicts.
const (
	// BoundByLimit: the limit whose Binds is true decides the next departure.
	BoundByLimit Verdict = "limit"
	// NothingToSend: the program offers no more data.
	NothingToSend Verdict = "nothing_to_send"
	// BoundElsewhere: data waits, but not for a limit. It waits for the receiver, the network or a processor.
	BoundElsewhere Verdict = "elsewhere"
	// NothingComes: no queue of netnice has packets of this socket. The sender sends no more than this.
	NothingComes Verdict = "nothing_waits"
	// LimitedWhole: the socket has no room for netnice's state, as the memory for its options is full. Its limits hold,
	// and judge each packet by itself: which of them binds is not known.
	LimitedWhole Verdict = "as_a_whole"
)

// WhyLimit is one limit on a socket's path.
type WhyLimit struct {
	Limit
	// Subject is the subject of the limit. The kind "socket" marks a limit that the program itself has set by
	// setsockopt.
	Subject Subject `json:"subject"`
	Node    uint32  `json:"node,omitempty"` // the number of the limit's node; 0 = the limit is the socket's own
	// Holds is false if another limit on the same subject is lower. It is also false for a socket whose traffic stays
	// on the machine, if the limit excludes such traffic.
	Holds bool `json:"holds"`
	// UsedBytesPerSec is the traffic of everything under the limit during the measurement; Used is the same as a part
	// of the limit.
	UsedBytesPerSec uint64  `json:"used_bytes_per_sec"`
	Used            float64 `json:"used"`
	// Binds reports that this limit decides when the socket sends or receives next.
	Binds bool `json:"binds"`
	// Bound is the fraction of samples in which this limit was the one that bound, among the samples in which data
	// waited.
	Bound float64 `json:"bound"`
}

// KindSocket is the kind of a limit that a program has set on a socket of its own; shown, never set.
const KindSocket Kind = "socket"
