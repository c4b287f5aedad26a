package api

// Wish is what one owner wants of a subject. A nil field leaves what is there;
// a rate of 0 lifts the limit in that direction.
type Wish struct {
	UpBytesPerSec    *uint64 `json:"up_bytes_per_sec,omitempty"`
	DownBytesPerSec  *uint64 `json:"down_bytes_per_sec,omitempty"`
	TotalBytesPerSec *uint64 `json:"total_bytes_per_sec,omitempty"`
	BurstNS          *uint64 `json:"burst_ns,omitempty"` // 0 = the default, 10 ms
	Weight           *uint32 `json:"weight,omitempty"`   // 1..10000; 0 = the default, 100
	// MinBytesPerSec guarantees the subject so much of every limit on sending that stands
	// around it, whatever others send; 0 lifts. Administrators only.
	MinBytesPerSec *uint64 `json:"min_bytes_per_sec,omitempty"`
	// MinDownBytesPerSec is the same of what the subject receives by TCP.
	MinDownBytesPerSec *uint64 `json:"min_down_bytes_per_sec,omitempty"`
	// DSCP, 0 to 63, is the mark of its packets as they leave, for the network beyond; -1 lifts.
	DSCP *int `json:"dscp,omitempty"`
	// Reserve reserves sending time of a link, instead of a guarantee; administrators, and users
	// for what is theirs within what they were granted.
	Reserve *Reservation `json:"reserve,omitempty"`
	// Line is what a link's line carries beside IP packets, instead of what was said before.
	Line *Line `json:"line,omitempty"`
	// Grant says what a user may reserve of a link; administrators only.
	Grant    *Grant `json:"grant,omitempty"`
	Loopback *bool  `json:"loopback,omitempty"` // limit traffic of the machine to itself too
	// InputMeter says whether received bytes count against the total; so they do
	// unless it is false.
	InputMeter *bool `json:"input_meter,omitempty"`
	// Persist says whether what the caller wants of the subject is in force again after a
	// reboot. So it is unless it is false, but for processes, which do not outlive one: of
	// them, and by a daemon that was started on demand, true is refused.
	Persist *bool `json:"persist,omitempty"`
}

// Reservation is a slice of a link's time in each period: what the link's limit on sending
// carries in that time. It is there as the period begins; what is not used of it is lost.
type Reservation struct {
	Link     string `json:"link"`            // the id of its subject, such as eth0; a limit has to stand on it
	PeriodNS uint64 `json:"period_ns"`       // 1 ms to 1 s
	SliceNS  uint64 `json:"slice_ns"`        // up to the period; 0 releases
	Extra    bool   `json:"extra,omitempty"` // a share of what is left, too; else no more by that link
	// ForNS is how long it stands from now on; 0 = until it is released. In answers it is
	// what is left of that.
	ForNS uint64 `json:"for_ns,omitempty"`
}

// Line is what a line carries for a packet; limits on its link then count that. The zero value
// is IP packets alone.
type Line struct {
	OverheadBytes uint32 `json:"overhead_bytes"`        // more than its IP bytes, up to 255
	LeastBytes    uint32 `json:"least_bytes,omitempty"` // at least so many, up to 1500
	ATM           bool   `json:"atm,omitempty"`         // in cells of 53 bytes, 48 of them payload
}

// Grant is what a user may reserve, for processes and connections of theirs.
type Grant struct {
	Link string `json:"link"`     // the id of its subject
	PPM  uint32 `json:"part_ppm"` // of the link's limit on sending, up to 1000000; 0 = nothing
}

// SetRequest is the body of PUT /v1/limits.
type SetRequest struct {
	Subject Subject `json:"subject"`
	Wish    Wish    `json:"wish"`
	// Members, of a group only, are taken into it; the first make it. Each is, with its
	// descendants, one of those who share the group's limit.
	Members []Member `json:"members,omitempty"`
	// Leave takes Members out of the group instead, each with its descendants; a Subject
	// without an ID is the group that each is in. Nothing else may be asked for then.
	Leave bool `json:"leave,omitempty"`
	// Prefixes are what the file lists that a destination names (file:PATH), as the caller has
	// read it; needed for the first limit by it, and where it has changed.
	Prefixes []string `json:"prefixes,omitempty"`
	// Scope asks the daemon to move the process (Subject must be a pid) into a
	// cgroup of its own, a systemd scope where systemd runs, and to limit that:
	// for programs whose children escape the process tree.
	Scope bool `json:"scope,omitempty"`
	// DryRun says what would change and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// Member is a process in a group.
type Member struct {
	PID    int    `json:"pid"`
	Weight uint32 `json:"weight,omitempty"` // 1..10000 beside the others, 0 = as it is, or 100
}

// SetResponse answers PUT and DELETE /v1/limits.
type SetResponse struct {
	Version  string   `json:"version"`
	Node     *Node    `json:"node,omitempty"`
	Changed  bool     `json:"changed"`
	Warnings []string `json:"warnings,omitempty"` // such as: the process does not run
	Left     []Left   `json:"left,omitempty"`     // who has left a group, or would
	// LoadedPrefixes are those of a file that are in force since, and LoadNS is how long that took.
	LoadedPrefixes int    `json:"loaded_prefixes,omitempty"`
	LoadNS         uint64 `json:"load_ns,omitempty"`
}

// SetList is what commands print with --json whose subject stands for several: what became of each.
type SetList struct {
	Version string        `json:"version"`
	Pattern string        `json:"pattern"` // such as "name:curl"; "" for all that have limits
	Answers []SetResponse `json:"answers"`
	// Rule is the rule that --always added. The answers are the nodes on which its limits stand now.
	Rule *RuleOrigin `json:"rule,omitempty"`
}

// Left is a process that has left a group.
type Left struct {
	PID   int    `json:"pid"`
	Group string `json:"group"`
}
