package api

import "time"

// EventType says what happened. The set stays open: clients must skip types that they do not know.
type EventType string

// The types of event, and the fields that an Event of each has beside Type and Time.
const (
	// EventHello is the first event. It has the Release and PID of the daemon, and how many limits the daemon Adopted
	// or had SetAgain as it started.
	EventHello EventType = "hello"
	// EventLimitSet: a Subject without a limit has received one. The event has Limits and By, and how many running
	// Processes and open Sockets the limit covers.
	EventLimitSet EventType = "limit_set"
	// EventLimitChanged: the limits of a Subject have changed; Limits are the present ones.
	EventLimitChanged EventType = "limit_changed"
	// EventLimitLifted: the last limit of a Subject was removed; Limits are those that it had.
	EventLimitLifted EventType = "limit_lifted"
	// EventLimitEnded: a limit ended because its Subject is gone, with its last process and its last connection.
	EventLimitEnded EventType = "limit_ended"
	// EventLimitFailed: a limit is not in force; Message says why.
	EventLimitFailed EventType = "limit_failed"
	// EventNameChanged: a host name of the limit has other addresses, or is not found and keeps its previous addresses;
	// Message says which.
	EventNameChanged EventType = "name_changed"
	// EventRuleMatched: Rules match the process PID, which has just executed Program.
	EventRuleMatched EventType = "rule_matched"
	// EventRulesRead: the rule files of Owner were read; Count rules are in force.
	EventRulesRead EventType = "rules_read"
	// EventRulesRefused: rule files have mistakes, which Problems lists; the previous rules stay in force.
	EventRulesRefused EventType = "rules_refused"
	// EventQueueMade: the network namespace Netns now has a queue in which packets of a Direction may wait.
	EventQueueMade EventType = "queue_made"
	// EventQueueGone: such a queue was removed.
	EventQueueGone EventType = "queue_gone"
	// EventDropsBegan: packets of a Direction are dropped, after a while without drops. Drops counts those since the
	// last sample, a second ago.
	EventDropsBegan EventType = "drops_began"
	// EventPowerSet: a process (Subject, PID) without a CPU share has received one: Power, By.
	EventPowerSet EventType = "power_set"
	// EventPowerChanged: a CPU share has changed; Power is the present one. The field By is "auto" for a correction of
	// a reservation that follows a rate.
	EventPowerChanged EventType = "power_changed"
	// EventPowerLifted: a CPU share was removed; Power is the one that was removed.
	EventPowerLifted EventType = "power_lifted"
	// EventPowerEnded: the last process with a CPU share has ended.
	EventPowerEnded EventType = "power_ended"
	// EventDaemonLeaves is the last event; LimitsStay says whether the limits stay in force.
	EventDaemonLeaves EventType = "daemon_leaves"
	// EventMissed: the reader was too slow, and lost Count events at this place.
	EventMissed EventType = "missed"
)

// Event is one line of GET /v1/events. Callers receive the events that concern them. Root receives all. Others receive
// those of their own processes and user, of the host, and of the daemon.
type Event struct {
	Version string    `json:"version"`       // the version of the API
	Type    EventType `json:"type"`          // what happened
	Time    time.Time `json:"time,omitzero"` // when it happened

	Subject *Subject `json:"subject,omitempty"` // the subject of the limit or of the CPU share
	Node    uint32   `json:"node,omitempty"`    // the number of the subject's node
	Name    string   `json:"name,omitempty"`    // the subject's name, for people
	// The field By is the origin of the change: "admin", a user's name, "rule", or "auto".
	By     string  `json:"by,omitempty"`
	Limits []Limit `json:"limits,omitempty"` // the limits that the event is about

	Processes int `json:"processes,omitempty"` // the number of running processes that the limit covers
	Sockets   int `json:"sockets,omitempty"`   // the number of open sockets that the limit covers

	Rules   []RuleOrigin `json:"rules,omitempty"`   // the rules that match
	PID     int          `json:"pid,omitempty"`     // the process
	Program string       `json:"program,omitempty"` // the path of the program
	Power   *Power       `json:"power,omitempty"`   // the CPU share

	Owner    string        `json:"owner,omitempty"`    // whose rule files: "admin", or the name of a user
	Count    uint64        `json:"count,omitempty"`    // the number of rules or of lost events
	Problems []RuleProblem `json:"problems,omitempty"` // the mistakes in rule files

	Direction Direction `json:"direction,omitempty"` // the direction of the packets
	Netns     uint32    `json:"netns,omitempty"`     // the network namespace, by its inode number
	Drops     *Drops    `json:"drops,omitempty"`     // the dropped packets

	Release    string `json:"release,omitempty"`     // the version of the daemon
	Adopted    int    `json:"adopted,omitempty"`     // the number of limits that were in force as the daemon started
	SetAgain   int    `json:"set_again,omitempty"`   // the number of limits that the daemon set again as it started
	LimitsStay bool   `json:"limits_stay,omitempty"` // whether the limits stay in force without the daemon
	Message    string `json:"message,omitempty"`     // the reason, for people
}
