package cli_test

import (
	"os"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
)

// exampleRules returns three rules, and the given problems.
func exampleRules(problems ...string) (api.RuleList, api.RuleTest) {
	rate, none := uint64(1e6), uint64(0)
	scp := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "scp", File: "/etc/netnice/netnice.toml", Line: 1}, Owner: "admin",
		Conditions: []string{"program scp or sftp", "user bob"}, UpBytesPerSec: &rate, Share: "each", Active: true, Nodes: 2,
	}
	night := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "line 7", File: "/etc/netnice/netnice.toml", Line: 7}, Owner: "admin",
		Conditions: []string{"program s*", "time 22:00-06:00"}, DownBytesPerSec: &none, Weight: 50, Share: "all",
	}
	own := api.Rule{
		RuleOrigin: api.RuleOrigin{Name: "evil\x1b[2J", File: "/home/bob/.config/netnice/netnice.toml", Line: 1}, Owner: "bob",
		Conditions: []string{"unit x.service"}, TotalBytesPerSec: &rate, Share: "each", Also: true, Active: true,
	}
	list := api.RuleList{Version: api.Version, Followed: true, Rules: []api.Rule{scp, night, own}, Problems: []api.RuleProblem{}}
	for _, p := range problems {
		list.Problems = append(list.Problems, api.RuleProblem{File: "/etc/netnice/netnice.toml", Line: 3, Column: 1, Message: p, Remedy: "remove the line"})
	}
	test := api.RuleTest{
		Version: api.Version, PID: os.Getpid(), Program: "/usr/bin/scp", Name: "scp", User: "bob", Command: "scp a b:", Parent: "/bin/sh",
		Rules: []api.RuleVerdict{{Rule: scp, Matches: true, Holds: true}, {Rule: night, Differs: "time"}, {Rule: own, Matches: true}},
	}
	return list, test
}

// exampleDestinations returns limits on parts of the traffic: one for all users, one for the caller, and two for
// another user.
func exampleDestinations() []api.Node {
	var list []api.Node
	for i, id := range []string{"198.51.100.0/24", "203.0.113.7:443@user:bob", "(hidden)@user:eve", "(hidden)@user:eve"} {
		list = append(list, api.Node{
			ID: uint32(20 + i), Subject: api.Subject{Kind: api.KindTo, ID: id}, Private: i > 0, Weight: 100,
			Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, BurstNS: 10e6, Enforced: true}},
		})
	}
	return list
}

// exampleHeld returns a process that a rule limits, in a user that two owners have limited.
func exampleHeld() []api.Node {
	return []api.Node{
		{
			ID: 31, Parent: 30, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "test", Weight: 100,
			Limits: []api.Limit{{
				Owner: "bob", Direction: api.Down, BytesPerSec: 1e6, BurstNS: 10e6, Enforced: true,
				Rule: &api.RuleOrigin{Name: "night", File: "/etc/netnice/netnice.toml", Line: 7},
			}},
		},
		{
			ID: 30, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Name: "bob", Weight: 1,
			Limits: []api.Limit{
				{Owner: "admin", Direction: api.Up, BytesPerSec: 3e6, BurstNS: 10e6, Enforced: true},
				{Owner: "bob", Direction: api.Up, BytesPerSec: 5e6, BurstNS: 10e6, Enforced: true},
			},
		},
	}
}

// examplePending returns a process with a limit in force, in a unit whose limits are not in force. One of these would
// be the lowest.
func examplePending() []api.Node {
	limit := func(direction api.Direction, rate uint64, enforced bool) api.Limit {
		return api.Limit{Owner: "admin", Direction: direction, BytesPerSec: rate, BurstNS: 10e6, Enforced: enforced}
	}
	return []api.Node{
		{
			ID: 51, Parent: 52, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "test", Weight: 100,
			Limits: []api.Limit{limit(api.Down, 2e6, true)},
		},
		{
			ID: 52, Subject: api.Subject{Kind: api.KindUnit, ID: "x.service"}, Name: "x.service", Weight: 100,
			Limits: []api.Limit{limit(api.Up, 1e6, false), limit(api.Down, 3e6, false), limit(api.Total, 4e6, false)},
		},
	}
}

// exampleTotal returns three nodes. The first is a user who only downloads, under a limit by a rule on both directions
// together. The others are a process whose traffic is not counted, and a unit that does not run. Three sockets of the
// process have no room for state.
func exampleTotal() []api.Node {
	return []api.Node{
		{
			ID: 41, Subject: api.Subject{Kind: api.KindUser, ID: "eve"}, Name: "eve", Weight: 100, Members: api.Members{Processes: 1, Sockets: 1},
			Limits: []api.Limit{{
				Owner: "admin", Direction: api.Total, BytesPerSec: 3e6, BurstNS: 10e6, Enforced: true,
				Rule: &api.RuleOrigin{Name: "line", File: "/etc/netnice/netnice.toml", Line: 7},
			}},
			Up: api.Usage{Bytes: 41_000, RateBytesPerSec: 20_000}, Down: api.Usage{Bytes: 6_160_000, RateBytesPerSec: 2_990_000},
			Total: &api.TotalUsage{Bytes: 6_201_000, RateBytesPerSec: 3_010_000},
		},
		{
			ID: 42, Subject: api.Subject{Kind: api.KindPID, ID: strconv.Itoa(os.Getpid())}, Name: "borg", Weight: 1, Members: api.Members{Processes: 1, StatelessSockets: 3},
			Up: api.Usage{Uncounted: true}, Down: api.Usage{Uncounted: true},
		},
		{
			ID: 43, Subject: api.Subject{Kind: api.KindUnit, ID: "x.service"}, Name: "x.service", Weight: 100, Down: api.Usage{Uncounted: true},
			Limits: []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: 1e6, BurstNS: 10e6}},
		},
	}
}

// exampleTree returns a host, a user in it, and two processes of the user.
func exampleTree() []api.Node {
	up := func(rate uint64) []api.Limit {
		return []api.Limit{{Owner: "admin", Direction: api.Up, BytesPerSec: rate, BurstNS: 10e6, Enforced: true}}
	}
	since := time.Date(2026, 11, 21, 20, 30, 0, 0, time.UTC)
	return []api.Node{
		{
			ID: 4, Parent: 2, Subject: api.Subject{Kind: api.KindPID, ID: "10200"}, Name: "rsync", Limits: up(1e6), Weight: 100, Members: api.Members{Processes: 2, Sockets: 3}, Since: since,
			Up:   api.Usage{Bytes: 12_345_678, RateBytesPerSec: 998_000, WaitingSockets: 2, WaitingBytes: 1_200_000, WaitNS: 40e6, Held: 1},
			Down: api.Usage{Uncounted: true},
		},
		{ID: 3, Parent: 2, Subject: api.Subject{Kind: api.KindPID, ID: "990"}, Name: "evil\x1b[2J", Weight: 300, Members: api.Members{Processes: 1, Sockets: 1}, Since: since, Down: api.Usage{Uncounted: true}},
		{
			ID: 2, Parent: 1, Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Name: "bob", Weight: 100, Members: api.Members{Processes: 5, Sockets: 4}, Since: since,
			Limits: append(up(10e6), api.Limit{Owner: "bob", Direction: api.Up, BytesPerSec: 5e6, BurstNS: 10e6, Enforced: true}, api.Limit{Owner: "bob", Direction: api.Down, BytesPerSec: 7e6, BurstNS: 10e6, Enforced: true}),
			Down:   api.Usage{Bytes: 450_000_000, RateBytesPerSec: 6_990_000, WaitingBytes: 70_000, WaitNS: 10e6, Dropped: 3, DroppedFor: api.Drops{QueueFull: 3}},
			Up:     api.Usage{Bytes: 99_000_000, RateBytesPerSec: 1_500_000, Dropped: 42, DroppedFor: api.Drops{NoQueue: 40, Ahead: 2}},
		},
		{ID: 1, Subject: api.Subject{Kind: api.KindHost}, Name: "host", Limits: up(100e6), Weight: 100, Members: api.Members{Processes: 99, Sockets: 12}, Since: since, Down: api.Usage{Uncounted: true}},
	}
}
