package api

// RuleProblem is something wrong in a file of rules, and what to do about it.
type RuleProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 = the whole file
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// RuleCheck is what `netnice rules check --json` prints.
type RuleCheck struct {
	Version  string        `json:"version"`
	Files    []string      `json:"files"`
	Rules    int           `json:"rules"`
	Problems []RuleProblem `json:"problems"`
	// Warnings are what the author of a rule may not expect; the rules are good all the same.
	Warnings []RuleProblem `json:"warnings,omitempty"`
}

// RuleOrigin names the rule that set a limit.
type RuleOrigin struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int    `json:"line"`
}

// Rule is one rule that the daemon follows.
type Rule struct {
	RuleOrigin
	Owner      string   `json:"owner"`      // "admin", or the user whose own file it is in
	Conditions []string `json:"conditions"` // all must hold: "program scp", "user bob or eve"
	// Connections are those of the conditions that are on connections, for which alone the
	// rule holds then: "to 10.0.0.0/8", "port 443". "to (hidden)" stands for all of them, in
	// Conditions, too, where the rule is the administrator's and for others than the caller.
	Connections      []string `json:"connections,omitempty"`
	UpBytesPerSec    *uint64  `json:"up_bytes_per_sec,omitempty"`
	DownBytesPerSec  *uint64  `json:"down_bytes_per_sec,omitempty"`
	TotalBytesPerSec *uint64  `json:"total_bytes_per_sec,omitempty"`
	MinBytesPerSec   uint64   `json:"min_bytes_per_sec,omitempty"`
	// MinDownBytesPerSec is the same of what is received.
	MinDownBytesPerSec uint64 `json:"min_down_bytes_per_sec,omitempty"`
	Weight             uint32 `json:"weight,omitempty"`
	// AdaptSharePPM: what is sent follows the path to each host, and keeps that part of its
	// capacity beside others, at most UpBytesPerSec; 0 = the rule sets a limit.
	AdaptSharePPM uint32 `json:"adapt_share_ppm,omitempty"`
	Share         string `json:"share"` // "each" or "all"
	Also          bool   `json:"also,omitempty"`
	Active        bool   `json:"active"` // by the time of the day and the week
	Nodes         int    `json:"nodes"`  // on which it stands now
}

// RuleList answers GET /v1/rules and POST /v1/rules/reload.
type RuleList struct {
	Version string `json:"version"`
	// Followed is false for a daemon that was started on demand.
	Followed bool   `json:"followed"`
	Rules    []Rule `json:"rules"` // the administrator's, and the caller's own; for root everybody's
	// Problems are of files that were changed since and are not in force.
	Problems []RuleProblem `json:"problems"`
}

// RuleVerdict is whether one rule matches a process.
type RuleVerdict struct {
	Rule
	Matches bool `json:"matches"`
	// Holds: it matches, and no rule before it is in its way. For a connection the first
	// holds of those with Connections.
	Holds bool `json:"holds"`
	// Differs is the first condition that does not hold.
	Differs string `json:"differs,omitempty"`
}

// RuleTest answers GET /v1/rules/test.
type RuleTest struct {
	Version string        `json:"version"`
	PID     int           `json:"pid"`
	Program string        `json:"program"` // path
	Name    string        `json:"name"`    // as the kernel has it
	User    string        `json:"user"`
	Command string        `json:"command"`
	Cgroup  string        `json:"cgroup"`
	Parent  string        `json:"parent"` // path of its program
	Rules   []RuleVerdict `json:"rules"`
	// Container is the name of the container that it is in, or the id of one without a name.
	Container string `json:"container,omitempty"`
}
