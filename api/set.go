package api

// Wish is one owner's requested limits for a subject. A nil field leaves the present value; a rate of 0 lifts the limit
// in that direction.
type Wish struct {
	UpBytesPerSec    *uint64 `json:"up_bytes_per_sec,omitempty"`    // the limit on sent traffic
	DownBytesPerSec  *uint64 `json:"down_bytes_per_sec,omitempty"`  // the limit on received traffic
	TotalBytesPerSec *uint64 `json:"total_bytes_per_sec,omitempty"` // the limit on both directions together
	BurstNS          *uint64 `json:"burst_ns,omitempty"`            // how much may leave at once, as time at the limit's rate; 0 = the default, 10 ms
	Weight           *uint32 `json:"weight,omitempty"`              // the share beside others inside the same limit, 1 to 10000; 0 = the default, 100
	// MinBytesPerSec guarantees the subject this rate inside every enclosing limit on sending, whatever others send; 0
	// lifts the guarantee. Administrators only.
	MinBytesPerSec *uint64 `json:"min_bytes_per_sec,omitempty"`
	// MinDownBytesPerSec is the same guarantee for what the subject receives by TCP.
	MinDownBytesPerSec *uint64 `json:"min_down_bytes_per_sec,omitempty"`
	// DSCP, 0 to 63, marks the packets of the subject as they leave, for the networks on their way; -1 lifts.
	DSCP *int `json:"dscp,omitempty"`
	// Reserve reserves sending time of a link, instead of a guarantee. Administrators may reserve for anybody; users
	// for their own processes and connections, within their grant.
	Reserve *Reservation `json:"reserve,omitempty"`
	// Line is the link-layer overhead of a link's line, and replaces the previous one.
	Line *Line `json:"line,omitempty"`
	// Grant is the part of a link that a user may reserve; administrators only.
	Grant *Grant `json:"grant,omitempty"`
	// Loopback says whether the limit also covers traffic of the machine to itself.
	Loopback *bool `json:"loopback,omitempty"`
	// InputMeter says whether received bytes count against the total. They do unless it is false.
	InputMeter *bool `json:"input_meter,omitempty"`
	// Persist says whether the caller's limits on the subject come back after a reboot. They do unless it is false.
	// Limits on processes do not, because processes do not outlive a reboot: for them, true is refused. A daemon that
	// was started on demand refuses true, too.
	Persist *bool `json:"persist,omitempty"`
}

// Reservation is a slice of a link's time in each period: the bytes that the link's limit on sending carries in that
// time. The slice is available from the beginning of the period; its unused part is lost.
type Reservation struct {
	Link     string `json:"link"`      // the id of the link's subject, such as eth0; the link needs a limit
	PeriodNS uint64 `json:"period_ns"` // the period, 1 ms to 1 s
	SliceNS  uint64 `json:"slice_ns"`  // the slice, up to the period; 0 releases
	// Extra adds a share of the unreserved rest. Without it, the program sends no more on that link than the slice.
	Extra bool `json:"extra,omitempty"`
	// ForNS is how long the reservation lasts from now; 0 = until it is released. In answers it is the remaining time.
	ForNS uint64 `json:"for_ns,omitempty"`
}

// Line is the link-layer overhead of each packet; limits on the line's link then count the bytes with it. The zero
// value means IP packets alone.
type Line struct {
	OverheadBytes uint32 `json:"overhead_bytes"`        // how many bytes are added to each packet's IP bytes, up to 255
	LeastBytes    uint32 `json:"least_bytes,omitempty"` // the smallest size that a packet counts as, up to 1500
	ATM           bool   `json:"atm,omitempty"`         // whether the line carries cells of 53 bytes, 48 of them payload
}

// Grant is the part of a link that a user may reserve for their own processes and connections.
type Grant struct {
	Link string `json:"link"`     // the id of the link's subject
	PPM  uint32 `json:"part_ppm"` // the part of the link's limit on sending, in millionths up to 1000000; 0 = nothing
}

// SetRequest is the body of PUT /v1/limits.
type SetRequest struct {
	Subject Subject `json:"subject"` // whom the limits are for
	Wish    Wish    `json:"wish"`    // the limits
	// Members are processes that join the group; only a group has them. The first ones create the group. Each member,
	// with its descendants, counts as one in the sharing of the group's limit.
	Members []Member `json:"members,omitempty"`
	// Leave takes Members out of the group instead, each with its descendants. A Subject without an ID means the group
	// that each member is in. The request must ask for nothing else then.
	Leave bool `json:"leave,omitempty"`
	// Prefixes are the content of a destination's file (file:PATH), as the caller has read it. The first limit on that
	// file needs them, and so does each later one after the file has changed.
	Prefixes []string `json:"prefixes,omitempty"`
	// Scope asks the daemon to limit the process (Subject must be a pid) by a cgroup of its own. The daemon moves the
	// process there: into a systemd scope where systemd runs. This suits programs whose children escape the process
	// tree.
	Scope bool `json:"scope,omitempty"`
	// ForNS is how long the limit holds from now, 1 s to 10 years; then what the caller had set before holds again. Only
	// ceilings are for a time. 0 means until it is lifted.
	ForNS uint64 `json:"for_ns,omitempty"`
	// DryRun asks what the request would change, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Member is a process in a group.
type Member struct {
	PID    int    `json:"pid"`              // the process
	Weight uint32 `json:"weight,omitempty"` // the weight beside the other members, 1 to 10000; 0 = as before, or 100
}

// SetResponse answers PUT and DELETE /v1/limits.
type SetResponse struct {
	Version  string   `json:"version"`            // the version of the API
	Node     *Node    `json:"node,omitempty"`     // the node of the subject; it is missing if no limit is left
	Changed  bool     `json:"changed"`            // whether the request has changed something, or would change it
	Warnings []string `json:"warnings,omitempty"` // effects that the caller may not expect, such as: the process does not run
	Left     []Left   `json:"left,omitempty"`     // the processes that have left a group, or would leave it
	// LoadedPrefixes is the number of a file's prefixes that this request put in force, and LoadNS the time that this
	// took.
	LoadedPrefixes int    `json:"loaded_prefixes,omitempty"`
	LoadNS         uint64 `json:"load_ns,omitempty"`
}

// SetList is the --json output of commands whose subject matches several: it has the answer for each.
type SetList struct {
	Version string        `json:"version"` // the version of the API
	Pattern string        `json:"pattern"` // such as "name:curl"; "" for all subjects that have limits
	Answers []SetResponse `json:"answers"` // an answer for each subject
	// Rule is the rule that --always added. The answers are the nodes on which its limits stand now.
	Rule *RuleOrigin `json:"rule,omitempty"`
}

// Left is a process that has left a group.
type Left struct {
	PID   int    `json:"pid"`   // the process
	Group string `json:"group"` // the name of the group
}
