package cli_test

import (
	"os"

	"github.com/netnice/netnice/api"
)

// exampleWhy returns a process with two connections that a limit binds, one that none binds, one on which another
// process has sent, and one without room for state. A descendant of the process has a connection of its own.
func exampleWhy() api.Why {
	rate := func(n uint64) *uint64 { return &n }
	limits := func(binds bool) []api.WhyLimit {
		return []api.WhyLimit{
			{
				Limit:   api.Limit{Owner: "bob", Direction: api.Up, BytesPerSec: 10e6, BurstNS: 10e6, Enforced: true},
				Subject: api.Subject{Kind: api.KindPID, ID: "4711"}, Node: 2, Holds: true, UsedBytesPerSec: 3e6, Used: 0.3,
			},
			{
				Limit: api.Limit{
					Owner: "admin", Direction: api.Up, BytesPerSec: 3e6, BurstNS: 10e6, Enforced: true,
					Rule: &api.RuleOrigin{Name: "backups\x1b[2J", File: "/etc/netnice/netnice.toml", Line: 7},
				},
				Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Node: 1, Holds: true, UsedBytesPerSec: 3e6, Used: 0.9997, Binds: binds, Bound: 0.96,
			},
			{
				Limit: api.Limit{
					Owner: "bob", Direction: api.Up, BytesPerSec: 5e6, BurstNS: 10e6, Enforced: true, LeftNS: 540e9, ThenBytesPerSec: 8e6,
				},
				Subject: api.Subject{Kind: api.KindUser, ID: "bob"}, Node: 1, UsedBytesPerSec: 3e6, Used: 0.6,
			},
		}
	}
	return api.Why{
		Version: api.Version, PID: os.Getpid(), Name: "rsync", OverNS: 1e9, Looks: 25, Free: 3,
		Processes: []api.WhyProcess{{PID: os.Getpid(), Name: "rsync"}, {PID: 4712, Name: "ssh\x1b[2J"}}, HiddenProcesses: 2,
		Sockets: []api.WhySocket{
			{
				FDs: []int{4}, Protocol: "tcp", Local: "10.0.0.1:40000", Remote: "10.0.0.2:873", PID: os.Getpid(), Limits: limits(true),
				SentBytesPerSec: rate(1e6), ReceivedBytesPerSec: rate(20e3), WaitingBytes: 500e3, Up: api.BoundByLimit, Down: api.NothingComes,
			},
			{
				FDs: []int{5, 9}, Protocol: "tcp", Local: "10.0.0.1:40001", Remote: "10.0.0.2:873", PID: os.Getpid(), Limits: limits(true),
				SentBytesPerSec: rate(2e6), ReceivedBytesPerSec: rate(20e3), WaitingBytes: 500e3, Up: api.BoundByLimit, Down: api.NothingComes,
			},
			{
				FDs: []int{6}, Protocol: "tcp", Local: "[::1]:40002", Remote: "[2001:db8::1]:22", PID: 1, Limits: limits(false),
				SentBytesPerSec: rate(0), ReceivedBytesPerSec: rate(0), Up: api.NothingToSend, Down: api.NothingComes,
			},
			{FDs: []int{}, Protocol: "udp", Local: "10.0.0.1:53", PID: os.Getpid(), Limits: limits(false)[:1], Up: api.BoundElsewhere, Down: api.NothingComes},
			{
				Process: 4712, FDs: []int{3}, Protocol: "tcp", Local: "10.0.0.1:40003", Remote: "10.0.0.2:22", PID: 4712, Limits: limits(true),
				Up: api.BoundByLimit, Down: api.NothingComes,
			},
			{
				FDs: []int{7}, Protocol: "tcp", Local: "10.0.0.1:40004", Remote: "10.0.0.2:873", PID: os.Getpid(), Limits: limits(false),
				Up: api.LimitedWhole, Down: api.LimitedWhole,
			},
		},
		Notes: []string{"1 socket has no room for state: sudo sysctl"},
	}
}
