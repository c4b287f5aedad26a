// Package api holds the JSON types that netnice's daemon and its clients
// exchange over the unix socket. It uses the standard library only, owns no
// behaviour beyond parsing and printing a subject, and never talks to anything.
//
// Every rate is in bytes of IP packets (headers included) per second, every
// duration in nanoseconds, every time in RFC 3339.
package api

import (
	"fmt"
	"strings"
	"time"
)

// Version is the API version; it stands in every path ("/v1/...") and in every
// top-level JSON object.
const Version = "v1"

// Kind says what a subject is.
type Kind string

// The kinds of subject that a limit can stand on. Sets stay open: clients must
// print kinds that they do not know.
const (
	KindPID       Kind = "pid"       // a process and its children; pid 1 is the host
	KindUser      Kind = "user"      // every process of a user, also of root, also with nothing running
	KindCgroup    Kind = "cgroup"    // every process in a cgroup v2 and below
	KindUnit      Kind = "unit"      // a systemd unit, by its cgroup
	KindHost      Kind = "host"      // the machine
	KindContainer Kind = "container" // a container, by its name or id
	KindGroup     Kind = "group"     // processes that share a limit, by the name of the group
	KindLink      Kind = "link"      // a network device, by its name
	KindTo        Kind = "to"        // a destination prefix
	KindRule      Kind = "rule"      // what a rule holds for; to be shown, not set
)

// Subject names who a limit is for. Its text form is "kind:id": "pid:123",
// "user:bob", "cgroup:/system.slice/x.service", "unit:nginx.service", "container:web",
// "link:eth0", "host". Of a link in another network namespace than the daemon's the inode number of
// that stands after it: "link:eth0@4026532301".
type Subject struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id,omitempty"`
}

func (s Subject) String() string {
	if s.ID == "" {
		return string(s.Kind)
	}
	return string(s.Kind) + ":" + s.ID
}

// ParseSubject reads the text form of a subject.
func ParseSubject(text string) (Subject, error) {
	kind, id, _ := strings.Cut(text, ":")
	switch k := Kind(kind); k {
	case KindHost:
		if id != "" {
			return Subject{}, fmt.Errorf("subject %q: host takes no name", text)
		}
		return Subject{Kind: k}, nil
	case KindPID, KindUser, KindCgroup, KindUnit, KindContainer, KindGroup, KindLink, KindTo, KindRule:
		if id == "" {
			return Subject{}, fmt.Errorf("subject %q: %s needs a name, for instance %s:NAME", text, k, k)
		}
		return Subject{Kind: k, ID: id}, nil
	}
	return Subject{}, fmt.Errorf("subject %q: want pid:N, user:NAME, cgroup:PATH, unit:NAME, container:NAME, group:NAME, link:DEVICE, to:PREFIX, rule:NAME or host; commands take name:PROGRAM, too", text)
}

// Hidden stands in a subject, or in a name, for a destination that the caller may not see:
// "to:(hidden)@pid:123". Several nodes may have the same subject then; their ids differ.
const Hidden = "(hidden)"

// Direction of traffic, seen from the machine.
type Direction string

// Up is what the subject sends, Down what it receives, Total both together.
const (
	Up    Direction = "up"
	Down  Direction = "down"
	Total Direction = "total"
)

// Limit is what one owner has set on a node and what holds.
type Limit struct {
	Owner       string    `json:"owner"` // "admin", or the name of the user who set it
	Direction   Direction `json:"direction"`
	BytesPerSec uint64    `json:"bytes_per_sec"`
	BurstNS     uint64    `json:"burst_ns"`
	// Enforced is false for a direction that is stored but does not hold yet.
	Enforced bool `json:"enforced"`
	// UntilReboot: it does not come back after one. Those on processes never do.
	UntilReboot bool `json:"until_reboot,omitempty"`
	// Rule set it; nil for what somebody set by a command.
	Rule *RuleOrigin `json:"rule,omitempty"`
}

// Node is one subject in the tree that `netnice ls` prints.
type Node struct {
	ID      uint32  `json:"id"`
	Subject Subject `json:"subject"`
	// Parent is the node that encloses this one, 0 if none does.
	Parent uint32  `json:"parent,omitempty"`
	Name   string  `json:"name"` // command, user or unit name, for people
	UID    uint32  `json:"uid"`  // whose process it is
	Limits []Limit `json:"limits"`
	Weight uint32  `json:"weight"`
	Group  string  `json:"group,omitempty"` // that it is a member of
	// MinBytesPerSec is what it may send at least, 0 if nothing is guaranteed.
	MinBytesPerSec     uint64 `json:"min_bytes_per_sec,omitempty"`
	MinDownBytesPerSec uint64 `json:"min_down_bytes_per_sec,omitempty"` // the same of what it receives
	DSCP               *int   `json:"dscp,omitempty"`                   // nil: the programs' own
	// Reserved is what MinBytesPerSec is reserved by; nil if it is no reservation.
	Reserved *Reservation `json:"reserved,omitempty"`
	Granted  *Grant       `json:"granted,omitempty"` // to the user
	// Line is what a link's line carries beside; its limits and figures count that, what it sent
	// by TCP included. nil: IP bytes alone.
	Line *Line `json:"line,omitempty"`
	// Private: the destination is told to administrators, to who has set the limit, and to whose
	// traffic it limits, and to nobody else. IsHidden reports whether the caller is not told.
	Private bool `json:"private,omitempty"`
	// Names are those that a destination is called by, and what they stand for.
	Names []NameAddresses `json:"names,omitempty"`
	// ListedPrefixes is how many a destination's file lists.
	ListedPrefixes int `json:"listed_prefixes,omitempty"`
	// PromisedBytesPerSec is what is guaranteed or reserved inside a link's limit on sending, of
	// PromisableBytesPerSec that may be.
	PromisedBytesPerSec   uint64 `json:"promised_bytes_per_sec,omitempty"`
	PromisableBytesPerSec uint64 `json:"promisable_bytes_per_sec,omitempty"`
	Loopback              bool   `json:"loopback,omitempty"`
	// MeterOff: received bytes do not count against the total.
	MeterOff bool `json:"input_meter_off,omitempty"`

	Processes int   `json:"processes"` // members now
	Sockets   int   `json:"sockets"`   // TCP sockets whose traffic counts here
	Up        Usage `json:"up"`        // bytes sent
	Down      Usage `json:"down"`      // bytes received
	// Total is what its limit on both directions together was charged; nil without such a limit.
	Total *TotalUsage `json:"total,omitempty"`
	PID   int         `json:"pid,omitempty"`
	Since time.Time   `json:"since,omitzero"`
}

// IsHidden reports whether the node's destination is not told to the caller: Hidden is in its place.
func (n *Node) IsHidden() bool {
	text := n.Name // of a rule's, which says for which connections
	if n.Subject.Kind == KindTo {
		text = n.Subject.ID
	}
	return n.Private && strings.HasPrefix(text, Hidden)
}

// NameAddresses is what a name stands for.
type NameAddresses struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	// Problem says why the last look found nothing: the addresses are those of an earlier one.
	Problem string `json:"problem,omitempty"`
}

// Usage counts one direction of a node.
type Usage struct {
	Bytes           uint64 `json:"bytes"`              // IP bytes since the limit was set
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // over the last second
	WaitingSockets  int    `json:"waiting_sockets"`    // sockets with data that wait for their turn
	WaitingBytes    uint64 `json:"waiting_bytes"`      // what these hold in their send buffers; down: what is in the queue
	WaitNS          uint64 `json:"wait_ns"`            // the longest of the waits, from now
	Held            uint64 `json:"held"`               // first segments of new connections that were held back
	QueuedBytes     uint64 `json:"queued_bytes"`       // up: what is sent, is no TCP, and is in the queue
	QueueNS         uint64 `json:"queue_ns"`           // up: what is put into that queue now is sent so much later
	Dropped         uint64 `json:"dropped"`            // packets, for whatever reason
	DroppedFor      Drops  `json:"dropped_for"`        // the same, by the reason
	// Uncounted: no limit is there by which this direction of the node is counted, so the figures say nothing.
	// Only lists of nodes tell.
	Uncounted bool `json:"uncounted,omitempty"`
}

// TotalUsage counts what was sent and received under a limit on both directions together.
type TotalUsage struct {
	Bytes           uint64 `json:"bytes"`              // IP bytes since the limit was set
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // over the last second
}

// Drops are packets that were dropped, by the reason.
type Drops struct {
	QueueFull uint64 `json:"queue_full"`     // the queue had no room for them
	NoQueue   uint64 `json:"no_queue"`       // there was none, and they were too far ahead of the limit
	Ahead     uint64 `json:"ahead_of_limit"` // they left the queue too fast, as no daemon runs that sets its rate
}

// Unknown is traffic of which no process is known, since netnice came up. It is
// counted while a limit stands on the host, where netnice looks at it in any case:
// what comes in if there is a limit on that, too; never that of lo. It is in no
// node's bytes, but for that of sockets, which the host is charged.
type Unknown struct {
	Up   UnknownUsage `json:"up"`
	Down UnknownUsage `json:"down"`
}

// UnknownUsage counts one direction of it.
type UnknownUsage struct {
	Bytes           uint64       `json:"bytes"`
	Packets         uint64       `json:"packets"`
	RateBytesPerSec uint64       `json:"rate_bytes_per_sec"` // over the last second
	BytesOf         UnknownBytes `json:"bytes_of"`           // the same bytes, by the reason
}

// UnknownBytes says why an owner is unknown.
type UnknownBytes struct {
	Socket   uint64 `json:"socket"`    // a socket that no process has: closed before the limit, and draining
	Kernel   uint64 `json:"kernel"`    // the kernel's own: answers to pings, resets; ICMP and the like that comes in
	NoSocket uint64 `json:"no_socket"` // comes in for no socket here (forwarded, refused, for a connection that has ended), or for a group
}

// NodeList answers GET /v1/nodes.
type NodeList struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time,omitzero"`
	// Subject is what was asked about, in netnice's own output alone; nil = all nodes.
	Subject *Subject `json:"subject,omitempty"`
	Nodes   []Node   `json:"nodes"`
	Unknown Unknown  `json:"unknown"`
	// Powers are the shares of the processors, by pid; with all nodes only, not with a subject's.
	Powers []Power `json:"powers,omitempty"`
}

// Program is a kernel program of netnice's and whether it is attached now.
type Program struct {
	Name     string `json:"name"`
	Attached bool   `json:"attached"`
	For      string `json:"for"` // what it does, for people
}

// Status answers GET /v1/status.
type Status struct {
	Version  string    `json:"version"`
	Release  string    `json:"release"` // netnice's own version
	PID      int       `json:"pid"`
	Since    time.Time `json:"since,omitzero"`
	OnDemand bool      `json:"on_demand"` // leaves by itself when the last limit goes
	Kernel   string    `json:"kernel"`
	Nodes    int       `json:"nodes"`
	Powers   int       `json:"powers,omitempty"` // processes with a share of the processors
	// Administrator: whoever asks may do what root may.
	Administrator bool              `json:"administrator,omitempty"`
	InputMeterOff bool              `json:"input_meter_off"` // received bytes count in no limit's total (netnice system)
	Programs      []Program         `json:"programs"`
	Unknown       Unknown           `json:"unknown"`
	Counters      map[string]uint64 `json:"counters"` // faults, by name: what went unlimited, or was not written down
	Problems      []Problem         `json:"problems,omitempty"`
}

// Problem is what an administrator should look at: such as a state that cannot be written.
type Problem struct {
	Message string `json:"message"`
	Hint    string `json:"hint"` // a command, or what to change
}

// Check is one line of `netnice doctor`.
type Check struct {
	Name   string `json:"name"`
	State  string `json:"state"` // "ok", "degraded" or "missing"
	Found  string `json:"found"`
	Means  string `json:"means,omitempty"`  // what follows for the user
	Remedy string `json:"remedy,omitempty"` // a command, or what to change
}

// Report is what `netnice doctor --json` prints.
type Report struct {
	Version string  `json:"version"`
	Kernel  string  `json:"kernel"`
	Checks  []Check `json:"checks"`
}
