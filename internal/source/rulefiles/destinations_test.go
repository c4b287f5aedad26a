package rulefiles

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
)

// Each tree that a rule matches has a node of its own, all trees share one, or the traffic is exempt. A rule without a
// process is for everybody. Another source gives the same numbers.
func TestLimitsOfDestinations(t *testing.T) {
	text := `
[[rule]]
name = "exempt"
program = "a"
to = "10.9.0.0/16"
up = "none"
[[rule]]
name = "each"
program = "a"
to = "10.0.0.0/8"
up = "1MB/s"
[[rule]]
name = "all"
program = "a"
port = 443
protocol = "tcp"
share = "all"
up = "2MB/s"
[[rule]]
name = "everybody"
to = "192.0.2.0/24"
up = "3MB/s"
`
	s := decided(t, text, rule("a", "port = 80\nup = '4MB/s'"))
	all := s.destinations(time.Now())
	require.True(t, all.Known)
	require.Len(t, all.Rules, 5)
	require.Equal(t, all, decided(t, text, rule("a", "port = 80\nup = '4MB/s'")).destinations(time.Now()))
	request := s.matches(7, "a").Own(desired.Rules{}, nil)
	trees := []Tree{{ID: 1, User: mallory, Rules: request}, {ID: 2, User: mallory, Rules: request}, {ID: 3}}
	limits, free := all.Limits(slices.Values(trees))
	type place struct {
		scope uint32
		uses  int
	}
	got := map[string][]place{}
	for key, l := range limits {
		r := all.Rules[l.Rule]
		require.Equal(t, uint64(l.Rule)<<32|uint64(l.Scope), key)
		got[r.Origin.Name] = append(got[r.Origin.Name], place{l.Scope, len(l.Uses)})
	}
	for _, list := range got {
		slices.SortFunc(list, func(a, b place) int { return int(a.scope) - int(b.scope) })
	}
	require.Equal(t, map[string][]place{"each": {{1, 1}, {2, 1}}, "all": {{0, 2}}, "everybody": {{0, 1}}, "a": {{1, 1}, {2, 1}}}, got)
	require.Len(t, free, 2)
	for _, r := range all.Rules {
		require.Equal(t, r.Origin.Name == "a", r.Owner() == enforce.OwnerUser)
	}
}

// Until all rules are read, the limits in force are to stay.
func TestDestinationsAreKnown(t *testing.T) {
	s := decided(t, "", "")
	s.read = false
	require.False(t, s.destinations(time.Now()).Known)
	s.read, s.system.set = true, nil
	require.False(t, s.destinations(time.Now()).Known, "a file that was wrong from the start")
}
