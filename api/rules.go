package api

// RuleProblem is a mistake in a rule file, and its remedy.
type RuleProblem struct {
	File    string `json:"file"`             // the path of the file
	Line    int    `json:"line,omitempty"`   // the line of the mistake; 0 = the whole file
	Column  int    `json:"column,omitempty"` // the column of the mistake; 0 = the whole line
	Message string `json:"message"`          // the mistake
	Remedy  string `json:"remedy,omitempty"` // what to write instead
}

// RuleCheck is the output of `netnice rules check --json`.
type RuleCheck struct {
	Version  string        `json:"version"`  // the version of the API
	Files    []string      `json:"files"`    // the files that were read
	Rules    int           `json:"rules"`    // the number of rules
	Problems []RuleProblem `json:"problems"` // the mistakes
	// Warnings are effects that the author of a rule may not expect; the rules are valid all the same.
	Warnings []RuleProblem `json:"warnings,omitempty"`
}

// RuleOrigin names the rule that set a limit.
type RuleOrigin struct {
	Name string `json:"name"` // the name of the rule
	File string `json:"file"` // the path of its file
	Line int    `json:"line"` // the line on which it begins
}

// Rule is one rule that the daemon has read.
type Rule struct {
	RuleOrigin
	Owner      string   `json:"owner"`      // "admin", or the user whose own file it is in
	Conditions []string `json:"conditions"` // the conditions, which must all hold: "program scp", "user bob or eve"
	// Connections are those Conditions that select connections: "to 10.0.0.0/8", "port 443". A rule that has some
	// limits the matching connections only. "to (hidden)" replaces all of them, in Conditions, too, if the rule is the
	// administrator's and concerns others than the caller.
	Connections      []string `json:"connections,omitempty"`
	UpBytesPerSec    *uint64  `json:"up_bytes_per_sec,omitempty"`    // the limit on sent traffic; 0 = no limit
	DownBytesPerSec  *uint64  `json:"down_bytes_per_sec,omitempty"`  // the limit on received traffic; 0 = no limit
	TotalBytesPerSec *uint64  `json:"total_bytes_per_sec,omitempty"` // the limit on both directions together; 0 = no limit
	MinBytesPerSec   uint64   `json:"min_bytes_per_sec,omitempty"`   // the guaranteed rate of sending
	// MinDownBytesPerSec is the same guarantee for received traffic.
	MinDownBytesPerSec uint64 `json:"min_down_bytes_per_sec,omitempty"`
	Weight             uint32 `json:"weight,omitempty"` // the share beside others inside the same limit; 0 = not set
	// AdaptSharePPM says that the sending rate follows the path to each host, and that it keeps this part of the
	// capacity beside other traffic. UpBytesPerSec then bounds the rate. 0 = the rule sets a limit.
	AdaptSharePPM uint32 `json:"adapt_share_ppm,omitempty"`
	Share         string `json:"share"`          // how matching processes share the limit: "each" or "all"
	Also          bool   `json:"also,omitempty"` // whether the rule also holds if an earlier rule matches
	Active        bool   `json:"active"`         // whether its time of day and week is now
	Nodes         int    `json:"nodes"`          // the number of its nodes now
}

// RuleList answers GET /v1/rules and POST /v1/rules/reload.
type RuleList struct {
	Version string `json:"version"` // the version of the API
	// Followed is false for a daemon that was started on demand.
	Followed bool   `json:"followed"`
	Rules    []Rule `json:"rules"` // the administrator's rules and the caller's own; for root, everybody's
	// Problems are mistakes in files that have changed since, and whose changes are not in force.
	Problems []RuleProblem `json:"problems"`
}

// RuleVerdict says whether one rule matches a process.
type RuleVerdict struct {
	Rule
	Matches bool `json:"matches"` // whether all conditions of the rule hold for the process
	// Holds reports that the rule matches and that no earlier rule takes precedence. Among rules with Connections, the
	// first one that holds applies to a connection.
	Holds bool `json:"holds"`
	// Differs is the first condition that does not hold.
	Differs string `json:"differs,omitempty"`
}

// RuleTest answers GET /v1/rules/test.
type RuleTest struct {
	Version string        `json:"version"` // the version of the API
	PID     int           `json:"pid"`     // the process
	Program string        `json:"program"` // the path of its executable
	Name    string        `json:"name"`    // the kernel's name of the process
	User    string        `json:"user"`    // the name of its real user
	Command string        `json:"command"` // its command line
	Cgroup  string        `json:"cgroup"`  // its cgroup
	Parent  string        `json:"parent"`  // the path of its parent's executable
	Rules   []RuleVerdict `json:"rules"`   // the rules, in the order in which they are compared
	// Container is the name of the process's container, or the id of a container without a name.
	Container string `json:"container,omitempty"`
}
