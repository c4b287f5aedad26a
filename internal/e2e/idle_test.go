package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// needed holds the hooks that only a limit needs.
var needed = map[string]bool{
	"sock_create": true, "connect_fentry": true, "listen_fentry": true, "egress": true,
	"send_tp": true, "send_fentry": true, "sendpages_fentry": true, "mptcp_tp": true, "mptcp_fentry": true, "fork": true,
	"udp_fentry": true, "udpv6_fentry": true, "raw_fentry": true, "rawv6_fentry": true, "ping_fentry": true, "pingv6_fentry": true,
	"send_out": true, "send_back": true, "send_short": true,
}

// attachedNow lists the programs that status shows as attached.
func (s *stage) attachedNow() (base, others []string) {
	s.t.Helper()
	for _, p := range s.status().Programs {
		switch {
		case p.Attached && needed[p.Name]:
			others = append(others, p.Name)
		case p.Attached:
			base = append(base, p.Name)
		}
	}
	return base, others
}

// Without a limit, traffic passes only the hooks that options and new connections need. The others are attached with
// the first limit, and detached with the last.
func TestNothingAttachedWithoutLimit(t *testing.T) {
	// Not parallel: it counts what the whole machine holds.
	spare := newUsers()
	s := newStage(t)
	before := attached(t)
	d := s.daemon()
	base, others := s.attachedNow()
	slices.Sort(base)
	if !slices.Equal(base, []string{"getsockopt", "setsockopt", "sockops"}) || len(others) > 0 {
		t.Errorf("attached without a limit: %q and %q", base, others)
	}
	// The kernel confirms that: three of the new programs on the root cgroup are netnice's.
	made := objectsOf(t, d.cmd.Process.Pid)
	onRoot := func() (n int) {
		for _, id := range attached(t) {
			if made[object{"prog", id}] && !slices.Contains(before, id) {
				n++
			}
		}
		return n
	}
	if n := onRoot(); n != 3 {
		t.Errorf("%d programs on the root cgroup, want 3", n)
	}
	f := newField(s)
	x := f.send(testbed.SenderConfig{UID: spare})
	s.must("set", "--pid", x.pid(), "--up", "5MB/s")
	if _, others := s.attachedNow(); !slices.Contains(others, "egress") || !slices.Contains(others, "fork") || len(others) < 3 {
		t.Errorf("attached with a limit: %q", others)
	}
	s.must("set", "--user", itoa(spare), "--up", "5MB/s")
	s.must("unset", "--pid", x.pid())
	if _, others := s.attachedNow(); len(others) < 3 {
		t.Errorf("attached with one limit left: %q", others)
	}
	s.must("unset", "--user", itoa(spare))
	if _, others := s.attachedNow(); len(others) > 0 {
		t.Errorf("attached after the last limit: %q", others)
	}
	if n := onRoot(); n != 3 {
		t.Errorf("%d programs on the root cgroup after the last limit, want 3", n)
	}
	// The programs at tracepoints do not stay either: no link of theirs is left.
	if !eventually(2*time.Second, func() bool {
		n := 0
		for o := range objectsOf(t, d.cmd.Process.Pid) {
			if o.kind == "link" {
				n++
			}
		}
		return n == 3
	}) {
		t.Error("the daemon holds more than three links after the last limit")
	}
}
