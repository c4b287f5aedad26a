package api

import "time"

// AdaptRequest is the body of PUT /v1/adapt: what is sent to a host is to follow what the path
// there carries. Administrators only.
type AdaptRequest struct {
	// Host is an address, a name that stands for some, or prefixes, and "any": of these each
	// address to which something is sent, as long as it is. Those that begin with ! are left out.
	Host string `json:"host"`
	// Netns is the inode number of the network namespace that it is reached from, 0 = the
	// daemon's.
	Netns uint32 `json:"netns,omitempty"`
	// NetnsNamed: the caller means that namespace and no other. Without it Off ends what follows the path
	// from another one, where none does from that and only one does.
	NetnsNamed bool `json:"netns_named,omitempty"`
	// SharePPM is the part of the path's capacity that is kept beside traffic that takes
	// whatever is left, such as TCP: 100000 (10%) to 1000000; 0 = 500000.
	SharePPM uint32 `json:"share_ppm,omitempty"`
	// TCP: what TCP sends there is paced, too.
	TCP bool `json:"tcp,omitempty"`
	// StartBytesPerSec is the rate to begin with, 0 = measured by a short train of packets.
	StartBytesPerSec uint64 `json:"start_bytes_per_sec,omitempty"`
	// LeastBytesPerSec and MostBytesPerSec are bounds; 0 = 1000 bytes/s and none.
	LeastBytesPerSec uint64 `json:"least_bytes_per_sec,omitempty"`
	MostBytesPerSec  uint64 `json:"most_bytes_per_sec,omitempty"`
	// ReflectorPort is the UDP port of a netnice there that reflects probes, 0 = none: ICMP.
	ReflectorPort uint16 `json:"reflector_port,omitempty"`
	// BacklogNS is how long datagrams may wait here at the present rate, 10 ms to a minute: what
	// comes beyond is dropped. 0 = a second.
	BacklogNS uint64 `json:"backlog_ns,omitempty"`
	Off       bool   `json:"off,omitempty"` // it is not to, any more
	// DryRun says what would be, and sends nothing to the host.
	DryRun bool `json:"dry_run,omitempty"`
}

// Adapted is one address to which that is done. Rates are in bytes/s of IP packets.
type Adapted struct {
	Host                string    `json:"host"` // as it was asked for
	Address             string    `json:"address"`
	Netns               uint32    `json:"netns,omitempty"`
	Subject             Subject   `json:"subject"` // whose limit is set
	By                  string    `json:"by"`      // what the path is probed by: icmp-timestamp, icmp-echo, udp
	Mode                string    `json:"mode"`    // "delay": the queue is kept short; "share": beside who fills it; "silent": no probe is answered
	SharePPM            uint32    `json:"share_ppm"`
	TCP                 bool      `json:"tcp,omitempty"`
	RateBytesPerSec     uint64    `json:"rate_bytes_per_sec"` // that is allowed now
	SentBytesPerSec     uint64    `json:"sent_bytes_per_sec"` // lately
	CapacityBytesPerSec uint64    `json:"capacity_bytes_per_sec,omitempty"`
	LeastBytesPerSec    uint64    `json:"least_bytes_per_sec"`
	MostBytesPerSec     uint64    `json:"most_bytes_per_sec,omitempty"`
	BacklogNS           uint64    `json:"backlog_ns"`               // that datagrams may wait here
	BaseNS              uint64    `json:"base_ns"`                  // round trip of the empty path
	QueueNS             uint64    `json:"queue_ns"`                 // beyond that, now
	WindowPackets       int       `json:"window_packets,omitempty"` // that may be on their way at a time, 0 = any number
	AimNS               uint64    `json:"aim_ns"`                   // that is steered to
	ProbesLostPPM       uint32    `json:"probes_lost_ppm"`
	ProbedBytes         uint64    `json:"probed_bytes"` // what probes have cost
	Since               time.Time `json:"since,omitzero"`
	Area                string    `json:"area,omitempty"` // the prefixes by which it was found
}

// AdaptArea is prefixes of which each host is followed to which something is sent.
type AdaptArea struct {
	Host            string      `json:"host"` // as a destination is written
	Netns           uint32      `json:"netns,omitempty"`
	Subject         Subject     `json:"subject"` // whose limit, which is never reached, tells the hosts
	SharePPM        uint32      `json:"share_ppm"`
	TCP             bool        `json:"tcp,omitempty"`
	MostBytesPerSec uint64      `json:"most_bytes_per_sec,omitempty"`
	BacklogNS       uint64      `json:"backlog_ns"`     // that datagrams may wait here
	Rule            *RuleOrigin `json:"rule,omitempty"` // by which that is, nil = a command
	SilentHosts     int         `json:"silent_hosts"`   // that answer no probe, and are not limited
	Since           time.Time   `json:"since,omitzero"`
}

// AdaptList answers GET and PUT /v1/adapt: all, or what the request was about, also what it has ended. Hosts that were
// found by an area, to which somebody sends, are told to administrators only.
type AdaptList struct {
	Version  string      `json:"version"`
	Time     time.Time   `json:"time,omitzero"`
	Adapted  []Adapted   `json:"adapted"`
	Areas    []AdaptArea `json:"areas,omitempty"`
	Changed  bool        `json:"changed,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}
