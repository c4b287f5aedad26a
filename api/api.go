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

// Version is the API version. Every path ("/v1/...") and every top-level JSON object contains it.
const Version = "v1"

// Kind says what a subject is. The set stays open: clients must print kinds that they do not know.
type Kind string

// The kinds of subject that can have a limit.
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
	KindRule      Kind = "rule"      // the processes of a rule; shown, never set
)

// Subject names the processes or the traffic that a limit is for. Its text form is "kind:id": "pid:123", "user:bob",
// "cgroup:/system.slice/x.service", "unit:nginx.service", "container:web", "link:eth0", "host". A link in another
// network namespace than the daemon's has that namespace's inode number after its name: "link:eth0@4026532301".
type Subject struct {
	Kind Kind   `json:"kind"`         // what the subject is
	ID   string `json:"id,omitempty"` // the number, name, path or prefix of the subject; "" for the host
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

// Hidden replaces a destination that the caller may not see, in a subject or in a name: "to:(hidden)@pid:123". Several
// nodes may then have the same subject; their ids differ.
const Hidden = "(hidden)"

// Direction is a direction of traffic, seen from the machine.
type Direction string

// Up is the traffic that the subject sends, Down the traffic that it receives, Total both together.
const (
	Up    Direction = "up"
	Down  Direction = "down"
	Total Direction = "total"
)

// OwnerAdmin is the owner of what administrators set. Other owners are the names of users.
const OwnerAdmin = "admin"

// Limit is a limit that one owner has set on a node in one direction, and whether the kernel enforces it.
type Limit struct {
	Owner       string    `json:"owner"`         // OwnerAdmin, or the name of the user who set it
	Direction   Direction `json:"direction"`     // the direction of the limited traffic
	BytesPerSec uint64    `json:"bytes_per_sec"` // the limit
	BurstNS     uint64    `json:"burst_ns"`      // how much may leave at once, as time at the limit's rate
	// Enforced is false for a direction that is stored but not in force yet.
	Enforced bool `json:"enforced"`
	// UntilReboot reports whether the limit ends with a reboot. Limits on processes always do, without this flag.
	UntilReboot bool `json:"until_reboot,omitempty"`
	// LeftNS is how long a limit for a time still holds; 0 = until it is lifted. ThenBytesPerSec is the limit that holds
	// again after that; 0 = none.
	LeftNS          uint64 `json:"left_ns,omitempty"`
	ThenBytesPerSec uint64 `json:"then_bytes_per_sec,omitempty"`
	// Rule is the rule that set the limit; nil if a command set it.
	Rule *RuleOrigin `json:"rule,omitempty"`
}

// Node is one subject in the tree that `netnice ls` prints.
type Node struct {
	ID      uint32  `json:"id"`      // the number of the node; it stays the same while the node exists
	Subject Subject `json:"subject"` // the subject of the limits
	// Parent is the node that encloses this one; 0 if none does.
	Parent uint32  `json:"parent,omitempty"`
	Name   string  `json:"name"`            // the name of the command, user or unit, for people
	UID    uint32  `json:"uid"`             // the user id of its process
	Limits []Limit `json:"limits"`          // the limits of all owners
	Weight uint32  `json:"weight"`          // the share beside siblings inside the same limit, 1 to 10000
	Group  string  `json:"group,omitempty"` // the group that it is a member of
	// MinBytesPerSec is the rate that is guaranteed to what it sends; 0 if nothing is guaranteed.
	MinBytesPerSec     uint64 `json:"min_bytes_per_sec,omitempty"`
	MinDownBytesPerSec uint64 `json:"min_down_bytes_per_sec,omitempty"` // the same guarantee for received traffic
	DSCP               *int   `json:"dscp,omitempty"`                   // the mark of its packets; nil = the programs' own mark
	// Reserved is the reservation that MinBytesPerSec comes from; nil if it does not come from one.
	Reserved *Reservation `json:"reserved,omitempty"`
	Granted  *Grant       `json:"granted,omitempty"` // the part of a link that administrators have granted to the user
	// Line is the link-layer overhead of a link's line. The limits and figures of the link include it, also for what
	// the link sent by TCP. nil: IP bytes alone.
	Line *Line `json:"line,omitempty"`
	// Private reports whether the destination is visible to some callers only: administrators, the owner of the limit,
	// and the user whose traffic it limits.
	Private bool `json:"private,omitempty"`
	// Names are the host names of a destination, and their addresses.
	Names []NameAddresses `json:"names,omitempty"`
	// ListedPrefixes is the number of prefixes in a destination's file.
	ListedPrefixes int `json:"listed_prefixes,omitempty"`
	// PromisedBytesPerSec is the sum of the guarantees and reservations inside a link's limit on sending.
	// PromisableBytesPerSec is the most that this sum may be.
	PromisedBytesPerSec   uint64 `json:"promised_bytes_per_sec,omitempty"`
	PromisableBytesPerSec uint64 `json:"promisable_bytes_per_sec,omitempty"`
	Loopback              bool   `json:"loopback,omitempty"` // whether the limits also cover traffic of the machine to itself
	// MeterOff reports that received bytes do not count against the total.
	MeterOff bool `json:"input_meter_off,omitempty"`

	Members
	Up   Usage `json:"up"`   // the bytes that were sent
	Down Usage `json:"down"` // the bytes that were received
	// Total counts the bytes charged to the node's limit on both directions together; nil without such a limit.
	Total *TotalUsage `json:"total,omitempty"`
	PID   int         `json:"pid,omitempty"`  // the process; 0 = the subject is no process
	Since time.Time   `json:"since,omitzero"` // when the subject received its first limit
}

// Members counts what the limits of a node hold for now.
type Members struct {
	Processes int `json:"processes"` // the number of members now
	Sockets   int `json:"sockets"`   // the number of TCP sockets whose traffic counts here
	// StatelessSockets is the number of sockets, of any protocol, that have no room for netnice's state, because the
	// memory for their options is full. The limits hold for each as a whole, without pacing, so that TCP sends
	// 0.2 to 0.6 of its limit. Sockets does not include them. One that was closed may count until its process ends, and an MPTCP
	// socket counts beside its subflows. Only lists of nodes and the answer to a change of a limit have the number.
	StatelessSockets int `json:"stateless_sockets,omitempty"`
}

// IsHidden reports whether the caller may not see the node's destination: Hidden is in its place.
func (n *Node) IsHidden() bool {
	text := n.Name // a rule's node has its connections in the name
	if n.Subject.Kind == KindTo {
		text = n.Subject.ID
	}
	return n.Private && strings.HasPrefix(text, Hidden)
}

// NameAddresses is a host name and its addresses.
type NameAddresses struct {
	Name      string   `json:"name"`      // the host name
	Addresses []string `json:"addresses"` // the addresses of that name
	// Problem says why the last look-up found nothing; Addresses then come from an earlier one.
	Problem string `json:"problem,omitempty"`
}

// Usage counts one direction of a node.
type Usage struct {
	Bytes           uint64 `json:"bytes"`              // IP bytes since the limit was set
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // the rate over the last second
	WaitingSockets  int    `json:"waiting_sockets"`    // the number of sockets with data that wait for their departure time
	WaitingBytes    uint64 `json:"waiting_bytes"`      // the bytes that wait. Up: in the send buffers of these sockets; down: in the queue
	WaitNS          uint64 `json:"wait_ns"`            // the longest of the waits, from now
	Held            uint64 `json:"held"`               // the number of first segments of new connections that were held back
	QueuedBytes     uint64 `json:"queued_bytes"`       // the bytes of non-TCP traffic in the queue (up only)
	QueueNS         uint64 `json:"queue_ns"`           // the delay of a packet that enters that queue now (up only)
	Dropped         uint64 `json:"dropped"`            // the number of dropped packets, for whatever reason
	DroppedFor      Drops  `json:"dropped_for"`        // the dropped packets by the reason
	// Uncounted reports that no limit counts this direction of the node, so that the figures mean nothing. Only lists
	// of nodes set it.
	Uncounted bool `json:"uncounted,omitempty"`
}

// TotalUsage counts what was sent and received under a limit on both directions together.
type TotalUsage struct {
	Bytes           uint64 `json:"bytes"`              // IP bytes since the limit was set
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"` // the rate over the last second
}

// Drops are packets that were dropped, by the reason.
type Drops struct {
	QueueFull uint64 `json:"queue_full"`     // the queue was full
	NoQueue   uint64 `json:"no_queue"`       // no queue existed, and the packets were too far ahead of the limit
	Ahead     uint64 `json:"ahead_of_limit"` // they left the queue too fast, as no daemon was running to set its rate
}

// Unknown is traffic since netnice came up that belongs to no known process. netnice counts it while the host has a
// limit, and only where it examines packets in any case. Received traffic is counted if the host has a limit on that,
// too. The traffic of lo is never counted. No node's bytes include it, with one exception: the bytes of sockets
// (UnknownBytes.Socket) are charged to the host.
type Unknown struct {
	Up   UnknownUsage `json:"up"`   // sent traffic
	Down UnknownUsage `json:"down"` // received traffic
}

// UnknownUsage counts one direction of unknown traffic.
type UnknownUsage struct {
	Bytes           uint64       `json:"bytes"`              // IP bytes
	Packets         uint64       `json:"packets"`            // the number of packets
	RateBytesPerSec uint64       `json:"rate_bytes_per_sec"` // the rate over the last second
	BytesOf         UnknownBytes `json:"bytes_of"`           // the same bytes, by the reason
}

// UnknownBytes are the bytes of unknown traffic by the reason why the owner is unknown.
type UnknownBytes struct {
	Socket   uint64 `json:"socket"`    // bytes of a socket without a process: closed before the limit, and draining
	Kernel   uint64 `json:"kernel"`    // the kernel's own bytes: answers to pings, resets; received ICMP and the like
	NoSocket uint64 `json:"no_socket"` // bytes for no socket here (forwarded, refused, ended connection), or multicast
}

// NodeList answers GET /v1/nodes.
type NodeList struct {
	Version string    `json:"version"`       // the version of the API
	Time    time.Time `json:"time,omitzero"` // when the answer was made
	// Subject is the subject that the request named; only netnice's own output has it. nil = all nodes.
	Subject *Subject `json:"subject,omitempty"`
	Nodes   []Node   `json:"nodes"`   // the nodes
	Unknown Unknown  `json:"unknown"` // traffic that belongs to no known process
	// Powers are the CPU shares, by pid. Only a list of all nodes has them, not one of a single subject.
	Powers []Power `json:"powers,omitempty"`
}

// Program is a kernel program of netnice, and whether it is attached now.
type Program struct {
	Name     string `json:"name"`     // the name of the program
	Attached bool   `json:"attached"` // whether the program is attached now
	For      string `json:"for"`      // its purpose, for people
}

// Status answers GET /v1/status.
type Status struct {
	Version  string    `json:"version"`          // the version of the API
	Release  string    `json:"release"`          // netnice's own version
	PID      int       `json:"pid"`              // the process of the daemon
	Since    time.Time `json:"since,omitzero"`   // when the daemon started
	OnDemand bool      `json:"on_demand"`        // whether the daemon leaves by itself with the last limit
	Kernel   string    `json:"kernel"`           // the release of Linux
	Nodes    int       `json:"nodes"`            // the number of subjects with limits
	Powers   int       `json:"powers,omitempty"` // the number of processes with a CPU share
	// Administrator reports whether the caller has root's rights in netnice.
	Administrator bool `json:"administrator,omitempty"`
	// InputMeterOff reports that received bytes count in no limit's total (netnice system).
	InputMeterOff bool      `json:"input_meter_off"`
	Programs      []Program `json:"programs"` // the kernel programs
	Unknown       Unknown   `json:"unknown"`  // traffic that belongs to no known process
	// Counters are faults by name: traffic that went unlimited, state that was not written.
	Counters map[string]uint64 `json:"counters"`
	Problems []Problem         `json:"problems,omitempty"` // each problem that needs an administrator's attention
}

// Problem is something that needs an administrator's attention, such as a state that cannot be written.
type Problem struct {
	Message string `json:"message"` // the problem
	Hint    string `json:"hint"`    // a command, or what to change
}

// Check is one line of `netnice doctor`.
type Check struct {
	Name   string `json:"name"`             // the part of the machine that was examined
	State  string `json:"state"`            // "ok", "degraded" or "missing"
	Found  string `json:"found"`            // the state of that part
	Means  string `json:"means,omitempty"`  // the consequence for the user
	Remedy string `json:"remedy,omitempty"` // a command, or what to change
}

// Report is what `netnice doctor --json` prints.
type Report struct {
	Version string  `json:"version"` // the version of the API
	Kernel  string  `json:"kernel"`  // the release of Linux
	Checks  []Check `json:"checks"`  // the lines of the report
}
