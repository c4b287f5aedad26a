package api

import "time"

// AdaptRequest is the body of PUT /v1/adapt: it asks that the sending rate toward a host follows the capacity of the
// path. Administrators only.
type AdaptRequest struct {
	// Host is an address, a host name, or a list of prefixes ("any" is a prefix, too). If prefixes are given, each of
	// their addresses that receives traffic from here is followed, as long as it does. Prefixes that begin with ! are
	// left out.
	Host string `json:"host"`
	// Netns is the inode number of the network namespace that the path begins in; 0 = the daemon's.
	Netns uint32 `json:"netns,omitempty"`
	// NetnsNamed says that the caller means that namespace and no other. Without it, Off may end a path from another
	// namespace: if no such path begins in Netns, and paths of only one other namespace do.
	NetnsNamed bool `json:"netns_named,omitempty"`
	// SharePPM is the part of the path's capacity to keep beside traffic that takes all the rest, such as TCP: 100000
	// (10%) to 1000000; 0 = 500000.
	SharePPM uint32 `json:"share_ppm,omitempty"`
	// TCP says that TCP toward the host is paced, too.
	TCP bool `json:"tcp,omitempty"`
	// StartBytesPerSec is the starting rate; 0 = a short train of packets measures it.
	StartBytesPerSec uint64 `json:"start_bytes_per_sec,omitempty"`
	// LeastBytesPerSec and MostBytesPerSec bound the rate; 0 = at least 1000 bytes/s, and no upper bound.
	LeastBytesPerSec uint64 `json:"least_bytes_per_sec,omitempty"`
	MostBytesPerSec  uint64 `json:"most_bytes_per_sec,omitempty"`
	// ReflectorPort is the UDP port of a netnice on that host that reflects probes; 0 = none, the probes are ICMP.
	ReflectorPort uint16 `json:"reflector_port,omitempty"`
	// BacklogNS is how long datagrams may wait here at the present rate, 10 ms to a minute. Datagrams that would wait
	// longer are dropped. 0 = a second.
	BacklogNS uint64 `json:"backlog_ns,omitempty"`
	Off       bool   `json:"off,omitempty"` // asks to end that, and to lift the limit
	// DryRun asks what would change, and sends nothing to the host.
	DryRun bool `json:"dry_run,omitempty"`
}

// Adapted is one address whose path is followed. Rates are in bytes/s of IP packets.
type Adapted struct {
	Host    string  `json:"host"`            // the text of the request
	Address string  `json:"address"`         // the address that is followed
	Netns   uint32  `json:"netns,omitempty"` // the network namespace of the path, by its inode number; 0 = the daemon's
	Subject Subject `json:"subject"`         // the subject of the limit
	By      string  `json:"by"`              // the kind of probe: icmp-timestamp, icmp-echo, udp
	// Mode is "delay": the queue is kept short; "share": a share is kept beside traffic that fills the queue; "silent":
	// the host answers no probe.
	Mode                string `json:"mode"`
	SharePPM            uint32 `json:"share_ppm"`                        // the part of the capacity that is kept beside others, in millionths
	TCP                 bool   `json:"tcp,omitempty"`                    // whether TCP to the host is paced, too
	RateBytesPerSec     uint64 `json:"rate_bytes_per_sec"`               // the present limit
	SentBytesPerSec     uint64 `json:"sent_bytes_per_sec"`               // the bytes that were sent in the recent past, by seconds
	CapacityBytesPerSec uint64 `json:"capacity_bytes_per_sec,omitempty"` // the measured capacity of the path; 0 = not known yet
	LeastBytesPerSec    uint64 `json:"least_bytes_per_sec"`              // the lower bound of the rate
	MostBytesPerSec     uint64 `json:"most_bytes_per_sec,omitempty"`     // the upper bound of the rate; 0 = none
	BacklogNS           uint64 `json:"backlog_ns"`                       // the longest wait of datagrams here
	BaseNS              uint64 `json:"base_ns"`                          // the round trip of the empty path
	QueueNS             uint64 `json:"queue_ns"`                         // the delay beyond BaseNS, now
	// WindowPackets is the most packets on their way at a time, 0 = any number.
	WindowPackets int       `json:"window_packets,omitempty"`
	AimNS         uint64    `json:"aim_ns"`          // the queueing delay that the controller steers to
	ProbesLostPPM uint32    `json:"probes_lost_ppm"` // the part of the probes that was lost, in millionths
	ProbedBytes   uint64    `json:"probed_bytes"`    // the cost of the probes
	Since         time.Time `json:"since,omitzero"`  // when the path was first followed
	Area          string    `json:"area,omitempty"`  // the area that has found it
}

// AdaptArea is a list of prefixes. The path to each of their hosts that receives traffic from here is followed.
type AdaptArea struct {
	Host            string      `json:"host"`                         // the prefixes, as a destination is written
	Netns           uint32      `json:"netns,omitempty"`              // the network namespace of the paths, by its inode number; 0 = the daemon's
	Subject         Subject     `json:"subject"`                      // the subject of the limit that finds the hosts; that limit is never reached
	SharePPM        uint32      `json:"share_ppm"`                    // the part of each path's capacity that is kept beside others, in millionths
	TCP             bool        `json:"tcp,omitempty"`                // whether TCP to the hosts is paced, too
	MostBytesPerSec uint64      `json:"most_bytes_per_sec,omitempty"` // the upper bound of each rate; 0 = none
	BacklogNS       uint64      `json:"backlog_ns"`                   // the longest wait of datagrams here
	Rule            *RuleOrigin `json:"rule,omitempty"`               // the rule that asks for it; nil = a command
	SilentHosts     int         `json:"silent_hosts"`                 // the number of hosts that answer no probe, and are not limited
	Since           time.Time   `json:"since,omitzero"`               // when the area was set
}

// AdaptList answers GET and PUT /v1/adapt. It has all paths, or those that the request was about, also those that it
// has ended. Only administrators see the hosts that an area has found, because the list tells with whom somebody
// communicates.
type AdaptList struct {
	Version  string      `json:"version"`            // the version of the API
	Time     time.Time   `json:"time,omitzero"`      // when the answer was made
	Adapted  []Adapted   `json:"adapted"`            // the addresses whose path is followed
	Areas    []AdaptArea `json:"areas,omitempty"`    // the lists of prefixes that are followed
	Changed  bool        `json:"changed,omitempty"`  // whether the request has changed something, or would change it
	Warnings []string    `json:"warnings,omitempty"` // effects that the caller may not expect
}
