package api

// RuleProblem is a mistake in a rule file, and its remedy.
type RuleProblem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 = the whole file
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// RuleCheck is the output of `netnice rules check --json`.
type RuleCheck struct {
	Version  string        `json:"version"`
	Files    []string      `json:"files"`
	Rules    int           `json:"rules"`
	Problems []RuleProblem `json:"problems"`
	// Warnings are effects that the author of a rule may not expect; the rules are valid all the same.
	Warnings []RuleProblem `json:"warnings,omitempty"`
}

// RuleOrigin names the rule that set a limit.
type RuleOrigin struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int    `json:"line"`
}

// Rule is one rule that the daemon has read.
type Rule struct {
	RuleOrigin
	Owner      string   `json:"owner"`      // "admin", or the user whose own file it is in
	Conditions []string `json:"conditions"` // all must hold: "program scp", "user bob or eve"
	// Connections are those Conditions that select connections: "to 10.0.0.0/8", "port 443". A rule that has some
	// limits the matching connections only. "to (hidden)" replaces all of them, in Conditions, too, if the rule is the
	// administrator's and concerns others than the caller.
	Connections      []string `json:"connections,omitempty"`
	UpBytesPerSec    *uint64  `json:"up_bytes_per_sec,omitempty"`
	DownBytesPerSec  *uint64  `json:"down_bytes_per_sec,omitempty"`
	TotalBytesPerSec *uint64  `json:"total_bytes_per_sec,omitempty"`
	MinBytesPerSec   uint64   `json:"min_bytes_per_sec,omitempty"`
	// MinDownBytesPerSec is the same guarantee for received traffic.
	MinDownBytesPerSec uint64 `json:"min_down_bytes_per_sec,omitempty"`
	Weight             uint32 `json:"weight,omitempty"`
	// AdaptSharePPM says that the sending rate follows the path to each host, and that it keeps this part of the
	// capacity beside other traffic. UpBytesPerSec then bounds the rate. 0 = the rule sets a limit.
	AdaptSharePPM uint32 `json:"adapt_share_ppm,omitempty"`
	Share         string `json:"share"` // "each" or "all"
	Also          bool   `json:"also,omitempty"`
	Active        bool   `json:"active"` // its time of day and week is now
	Nodes         int    `json:"nodes"`  // the number of its nodes now
}

// RuleList answers GET /v1/rules and POST /v1/rules/reload.
type RuleList struct {
	Version string `json:"version"`
	// Followed is false for a daemon that was started on demand.
	Followed bool   `json:"followed"`
	Rules    []Rule `json:"rules"` // the administrator's and the caller's own; for root, everybody's
	// Problems are mistakes in files that have changed since, and whose changes are not in force.
	Problems []RuleProblem `json:"problems"`
}

// RuleVerdict says whether one rule matches a process.
type RuleVerdict struct {
	Rule
	Matches bool `json:"matches"`
	// Holds reports that the rule matches and that no earlier rule takes precedence. Among rules with Connections, the
	// first one that holds applies to a connection.
	Holds bool `json:"holds"`
	// Differs is the first condition that does not hold.
	Differs string `json:"differs,omitempty"`
}

// RuleTest answers GET /v1/rules/test.
type RuleTest struct {
	Version string        `json:"version"`
	PID     int           `json:"pid"`
	Program string        `json:"program"` // the path of its executable
	Name    string        `json:"name"`    // the kernel's name of the process
	User    string        `json:"user"`
	Command string        `json:"command"`
	Cgroup  string        `json:"cgroup"`
	Parent  string        `json:"parent"` // the path of its parent's executable
	Rules   []RuleVerdict `json:"rules"`
	// Container is the name of the process's container, or the id of a container without a name.
	Container string `json:"container,omitempty"`
}
