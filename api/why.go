package api

// Why answers GET /v1/why: what holds the connections of a process, as it was
// measured over a while.
type Why struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	OverNS  uint64 `json:"over_ns"` // for how long it was measured
	Looks   int    `json:"looks"`   // how often it was looked at meanwhile
	// Processes are those whose connections were looked at: the process that was asked about, and then its
	// descendants, parents first; with a file descriptor the process alone.
	Processes []WhyProcess `json:"processes"`
	// HiddenProcesses is how many descendants were left out, as the caller may not ask about them.
	HiddenProcesses int `json:"hidden_processes,omitempty"`
	// Sockets are those for which a limit holds, of the ones that the processes have open
	// or have left to be sent.
	Sockets []WhySocket `json:"sockets"`
	// Free is how many sockets without a limit they have open beside, unix sockets included.
	Free int `json:"free"`
	// Packet is how many of those are packet sockets: what is sent by them may leave past limits.
	Packet int `json:"packet,omitempty"`
}

// WhyProcess is a process whose connections were looked at.
type WhyProcess struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

// WhySocket is one socket, and the limits on its path.
type WhySocket struct {
	// Process has it open, of Why.Processes the first that has; or used it last, if none has.
	Process  int    `json:"process"`
	FDs      []int  `json:"fds"` // of that process; empty: closed and draining, or not accepted yet
	Protocol string `json:"protocol"`
	Local    string `json:"local"`
	Remote   string `json:"remote,omitempty"`
	// PID is the process that it is charged to: whoever used it last.
	PID      int  `json:"pid"`
	Loopback bool `json:"loopback,omitempty"` // it stays on the machine
	// IP bytes per second, over the time of the measurement; nil where the kernel does
	// not count them (UDP and the like).
	SentBytesPerSec     *uint64 `json:"sent_bytes_per_sec,omitempty"`
	ReceivedBytesPerSec *uint64 `json:"received_bytes_per_sec,omitempty"`
	WaitingBytes        uint64  `json:"waiting_bytes"` // in its send buffer, not sent yet
	WaitNS              uint64  `json:"wait_ns"`       // until its next departure

	Limits []WhyLimit `json:"limits"` // innermost first
	Up     Verdict    `json:"up"`
	Down   Verdict    `json:"down"`
}

// Verdict says what holds one direction of a socket.
type Verdict string

// The verdicts.
const (
	// BoundByLimit: the limit that is marked so decides when it goes on.
	BoundByLimit Verdict = "limit"
	// NothingToSend: the program offers no more than this.
	NothingToSend Verdict = "nothing_to_send"
	// BoundElsewhere: something waits, but not for a limit: for the receiver, the
	// network or a processor.
	BoundElsewhere Verdict = "elsewhere"
	// NothingComes: nothing waits in a queue of netnice's. The sender sends no more.
	NothingComes Verdict = "nothing_waits"
)

// WhyLimit is one limit on a socket's path.
type WhyLimit struct {
	Limit
	// Subject is what it stands on; of the kind "socket" for what the program itself has
	// set by setsockopt.
	Subject Subject `json:"subject"`
	Node    uint32  `json:"node,omitempty"`
	// Holds is false for one that another on the same subject is lower than, and where the
	// limit is not for traffic that stays on the machine.
	Holds bool `json:"holds"`
	// UsedBytesPerSec is what all under the limit sent or received meanwhile, and Used
	// the same as a part of the limit.
	UsedBytesPerSec uint64  `json:"used_bytes_per_sec"`
	Used            float64 `json:"used"`
	// Binds: this limit decides when the socket goes on.
	Binds bool `json:"binds"`
	// Bound is in which part of the looks, of those at which something waited, it was this one.
	Bound float64 `json:"bound"`
}

// KindSocket is the subject of a limit that a program has set on a socket of its own;
// to be shown, not set.
const KindSocket Kind = "socket"
