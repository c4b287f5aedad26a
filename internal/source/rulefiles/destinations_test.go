package rulefiles

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
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
	require.Len(t, all.rules, 5)
	require.False(t, all.IsEmpty())
	require.Equal(t, all, decided(t, text, rule("a", "port = 80\nup = '4MB/s'")).destinations(time.Now()))
	request := s.matches("a").Own(desired.Rules{}, nil)
	trees := []Tree{{ID: 1, User: mallory, Rules: request}, {ID: 2, User: mallory, Rules: request}, {ID: 3}}
	limits, free := all.Limits(slices.Values(trees))
	type place struct {
		scope uint32
		uses  int
	}
	got := map[string][]place{}
	for key, l := range limits {
		require.Equal(t, key, l.Key)
		require.EqualValues(t, l.Number, key>>32)
		require.True(t, all.HasNumber(l.Number))
		require.Equal(t, l.Subject.ID == "a", l.Owner == enforce.OwnerUser)
		got[l.Subject.ID] = append(got[l.Subject.ID], place{uint32(key), len(l.Uses)})
	}
	for _, list := range got {
		slices.SortFunc(list, func(a, b place) int { return int(a.scope) - int(b.scope) })
	}
	require.Equal(t, map[string][]place{"each": {{1, 1}, {2, 1}}, "all": {{0, 2}}, "everybody": {{0, 1}}, "a": {{1, 1}, {2, 1}}}, got)
	require.Len(t, free, 2)
}

// A node names whose traffic it limits. Only who knows by which of their names a rule matches sees it as theirs.
func TestSubjectsOfDestinations(t *testing.T) {
	s := decided(t, "[[rule]]\nname = 'one'\nprogram = 'a'\nport = 443\nup = '1MB/s'\n", "[[rule]]\nname = 'mine'\nport = 80\nup = '1MB/s'\n")
	all := s.destinations(time.Now())
	p := s.matches("a")
	subjects := func(request desired.Rules) map[string]identity.Resolved {
		limits, _ := all.Limits(slices.Values([]Tree{{Resolved: p.Resolved, ID: 1, User: mallory, Rules: request}}))
		list := map[string]identity.Resolved{}
		for _, l := range limits {
			list[l.Subject.ID] = l.Resolved
		}
		return list
	}
	request := p.Own(desired.Rules{}, nil)
	got := subjects(request)
	require.Len(t, got, 2)
	require.Equal(t, "port 443"+observe.OfWhom+p.Subject.String(), got["one"].Name)
	require.EqualValues(t, mallory, got["one"].UID)
	require.Equal(t, "port 80"+observe.OfWhom+identity.User(mallory).Subject.String(), got["mine"].Name)
	require.EqualValues(t, mallory, got["mine"].UID)
	request.Owners[enforce.OwnerAdmin].To[0].OwnName = true
	require.Zero(t, subjects(request)["one"].UID, "it matches by a name that the user may have chosen")
}

// Until all rules are read, the limits in force are to stay.
func TestDestinationsAreKnown(t *testing.T) {
	s := decided(t, "", "")
	s.read = false
	require.False(t, s.destinations(time.Now()).Known)
	s.read, s.system.set = true, nil
	require.False(t, s.destinations(time.Now()).Known, "a file that was wrong from the start")
}
