package api

import "time"

// EventType says what happened. Sets stay open: clients must pass over types that they
// do not know.
type EventType string

// The types of event, and what an Event of each has beside Type and Time.
const (
	// EventHello comes first: Release, PID of the daemon, and how many limits it Adopted
	// or had SetAgain as it started.
	EventHello EventType = "hello"
	// EventLimitSet: a Subject that had no limit has one. Limits, By, and for what runs
	// already how many Processes and Sockets obey.
	EventLimitSet EventType = "limit_set"
	// EventLimitChanged: Limits are what stand there now.
	EventLimitChanged EventType = "limit_changed"
	// EventLimitLifted: the last limit of a Subject was taken back; Limits are what stood there.
	EventLimitLifted EventType = "limit_lifted"
	// EventLimitEnded: its Subject is gone: the last process, and its last connection.
	EventLimitEnded EventType = "limit_ended"
	// EventLimitFailed: a limit does not hold; Message says why.
	EventLimitFailed EventType = "limit_failed"
	// EventNameChanged: a name that the limit is for has other addresses, or is not found and
	// keeps those that it had; Message says which.
	EventNameChanged EventType = "name_changed"
	// EventRuleMatched: Rules are for the process PID, which has just executed Program.
	EventRuleMatched EventType = "rule_matched"
	// EventRulesRead: files of rules were read, those of Owner; Count rules are in force.
	EventRulesRead EventType = "rules_read"
	// EventRulesRefused: something is wrong in them, which Problems says; what was in force is.
	EventRulesRefused EventType = "rules_refused"
	// EventQueueMade: packets of a Direction may wait in a queue in the network namespace Netns.
	EventQueueMade EventType = "queue_made"
	// EventQueueGone: it was let go of.
	EventQueueGone EventType = "queue_gone"
	// EventDropsBegan: packets of a Direction are dropped, after a while without; Drops are
	// those since the last look, a second ago.
	EventDropsBegan EventType = "drops_began"
	// EventPowerSet: a process (Subject, PID) that had no share of the processors has one: Power, By.
	EventPowerSet EventType = "power_set"
	// EventPowerChanged: Power is what it has now. By is "auto" where a reservation for a rate was
	// corrected.
	EventPowerChanged EventType = "power_changed"
	// EventPowerLifted: it was taken back; Power is what it was.
	EventPowerLifted EventType = "power_lifted"
	// EventPowerEnded: the last process that had it has ended.
	EventPowerEnded EventType = "power_ended"
	// EventDaemonLeaves comes last; LimitsStay says whether they do.
	EventDaemonLeaves EventType = "daemon_leaves"
	// EventMissed: the reader was too slow for Count events, which would have been here.
	EventMissed EventType = "missed"
)

// Event is one line of GET /v1/events. Callers get what concerns them: root everything,
// others what is of their processes and their user, of the host, and of the daemon.
type Event struct {
	Version string    `json:"version"`
	Type    EventType `json:"type"`
	Time    time.Time `json:"time,omitzero"`

	Subject *Subject `json:"subject,omitempty"`
	Node    uint32   `json:"node,omitempty"`
	Name    string   `json:"name,omitempty"` // of the subject, for people
	// By is who did it: "admin", a user's name, "rule", or "auto".
	By     string  `json:"by,omitempty"`
	Limits []Limit `json:"limits,omitempty"`

	Processes int `json:"processes,omitempty"`
	Sockets   int `json:"sockets,omitempty"`

	Rules   []RuleOrigin `json:"rules,omitempty"`
	PID     int          `json:"pid,omitempty"`
	Program string       `json:"program,omitempty"`
	Power   *Power       `json:"power,omitempty"`

	Owner    string        `json:"owner,omitempty"`
	Count    uint64        `json:"count,omitempty"`
	Problems []RuleProblem `json:"problems,omitempty"`

	Direction Direction `json:"direction,omitempty"`
	Netns     uint32    `json:"netns,omitempty"` // inode number
	Drops     *Drops    `json:"drops,omitempty"`

	Release    string `json:"release,omitempty"`
	Adopted    int    `json:"adopted,omitempty"`
	SetAgain   int    `json:"set_again,omitempty"`
	LimitsStay bool   `json:"limits_stay,omitempty"`
	Message    string `json:"message,omitempty"`
}
