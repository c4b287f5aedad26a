package cli_test

import (
	"time"

	"github.com/netnice/netnice/api"
)

// exampleEvents returns one event of each type, and one of an unknown type.
func exampleEvents() []api.Event {
	bob := api.Subject{Kind: api.KindUser, ID: "bob"}
	rsync := api.Subject{Kind: api.KindPID, ID: "4711"}
	limits := []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 5e6, Enforced: true}}
	rule := api.RuleOrigin{Name: "backups", File: "/etc/netnice/netnice.toml", Line: 7}
	power := api.Power{PID: 4711, Power: 30, SliceNS: 6e6, PeriodNS: 20e6, Guaranteed: true}
	list := []api.Event{
		{Type: api.EventHello, PID: 12, Release: "test", Adopted: 2, SetAgain: 1},
		{Type: api.EventLimitSet, Subject: &rsync, Node: 3, Name: "rsync\x1b[2J", Limits: limits, By: "bob", Processes: 2, Sockets: 1},
		{Type: api.EventLimitChanged, Subject: &bob, Node: 4, Name: "bob", Limits: limits, By: "rule"},
		{Type: api.EventLimitLifted, Subject: &bob, Node: 4, Name: "bob", Limits: limits, By: "admin"},
		{Type: api.EventLimitEnded, Subject: &rsync, Node: 3, Name: "rsync"},
		{Type: api.EventLimitFailed, Subject: &bob, Node: 4, Message: "no memory"},
		{Type: api.EventNameChanged, Subject: &api.Subject{Kind: api.KindTo, ID: "example.org"}, Node: 9, Message: "example.org: 192.0.2.1"},
		{Type: api.EventRuleMatched, Subject: &rsync, Name: "rsync", PID: 4711, Program: "/usr/bin/rsync", Rules: []api.RuleOrigin{rule}},
		{Type: api.EventRulesRead, Owner: "admin", Count: 3},
		{Type: api.EventRulesRefused, Owner: "uid 1000", Problems: []api.RuleProblem{{Message: "bad"}}},
		{Type: api.EventQueueMade, Direction: api.Up, Netns: 4026531840},
		{Type: api.EventQueueGone, Direction: api.Down, Netns: 4026531840},
		{Type: api.EventDropsBegan, Subject: &bob, Direction: api.Down, Drops: &api.Drops{QueueFull: 9}},
		{Type: api.EventPowerSet, Subject: &rsync, PID: 4711, Name: "rsync", By: "admin", Power: &power},
		{Type: api.EventPowerChanged, Subject: &rsync, PID: 4711, Name: "rsync", By: "auto", Power: &power},
		{Type: api.EventPowerLifted, Subject: &rsync, PID: 4711, Name: "rsync", By: "bob", Power: &power},
		{Type: api.EventPowerEnded, Subject: &rsync, PID: 4711, Name: "rsync", Power: &power},
		{Type: api.EventMissed, Count: 12},
		{Type: "of_later", Subject: &bob},
		{Type: api.EventDaemonLeaves, PID: 12, LimitsStay: true},
	}
	for i := range list {
		list[i].Version, list[i].Time = api.Version, time.Date(2026, 11, 21, 21, 0, i, 0, time.UTC)
	}
	return list
}
