package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// A limit for a time comes before the owner's other command, and rules fill in the rest. The kernel learns what the
// ceiling becomes at the end of that time.
func TestSpecCombines(t *testing.T) {
	var w Wanted
	w.Requested[enforce.OwnerAdmin] = limit.Limit{Up: 5, Weight: 50}
	w.Ruled.Owners[enforce.OwnerAdmin].Wish = limit.Limit{Up: 7, Down: 8}
	w.Timed[enforce.OwnerAdmin] = desired.Timed{Limit: limit.Limit{Up: 3}, End: limit.End{BoottimeNS: 99}}
	w.Requested[enforce.OwnerUser] = limit.Limit{Total: 9}
	of := Subject{ID: 4, Kind: enforce.KindUser, Key: 1000}
	spec := Spec(of, &w, Machine{})
	require.Equal(t, enforce.Ceiling{BytesPerSec: 3, Lapse: enforce.Lapse{BoottimeNS: 99, BytesPerSec: 5}}, spec.Ceilings[enforce.OwnerAdmin][enforce.Up])
	require.Equal(t, enforce.Ceiling{BytesPerSec: 8}, spec.Ceilings[enforce.OwnerAdmin][enforce.Down])
	require.Equal(t, enforce.Ceiling{BytesPerSec: 9}, spec.Ceilings[enforce.OwnerUser][enforce.Total])
	require.EqualValues(t, 50, spec.Weight)
	require.False(t, spec.Own || spec.MeterOff || spec.Each || spec.Notes)
	require.True(t, Spec(of, &w, Machine{InputMeterOff: true}).MeterOff, "for the whole machine")

	of.Kind, of.IsPart, of.IsEach = enforce.KindDestination, true, true
	each, stored := Spec(of, &w, Machine{}), Stored(of, &w, Machine{})
	require.True(t, each.Each)
	require.Equal(t, enforce.Ceiling{BytesPerSec: limit.NeverReached}, each.Ceilings[enforce.OwnerAdmin][enforce.Down])
	require.Equal(t, [3]any{uint32(0), uint32(4), false}, [3]any{stored.ID, stored.Store, stored.Each})
	require.Equal(t, enforce.Ceiling{BytesPerSec: 8}, stored.Ceilings[enforce.OwnerAdmin][enforce.Down])
}

func TestReservation(t *testing.T) {
	s := limit.Slice{Link: "eth0", PeriodNS: 10, SliceNS: 3}
	var w Wanted
	w.Requested[enforce.OwnerUser].Reserve = s
	require.Zero(t, w.Guarantee(enforce.Up), "the link has no limit")
	require.Equal(t, Worth{}, WorthOf(s, 5, 0))
	require.Equal(t, Worth{}, WorthOf(limit.Slice{}, 5, 100))
	w.Reserved = WorthOf(s, 5, 100)
	require.Equal(t, Worth{Link: 5, BytesPerSec: 30}, w.Reserved)
	spec := Spec(Subject{ID: 1, Kind: enforce.KindUser}, &w, Machine{})
	require.Equal(t, [3]any{uint64(30), uint32(5), true}, [3]any{spec.Guarantee, spec.Link, spec.SliceOnly})
}

// At most 95% of each enclosing limit may be guaranteed, unless its rate follows a path.
func TestRefusing(t *testing.T) {
	around := []Enclosing{{BytesPerSec: 100, Taken: 15}, {BytesPerSec: 10, IsElastic: true}, {BytesPerSec: 60}}
	require.EqualValues(t, 80, around[0].Left())
	require.Zero(t, Enclosing{BytesPerSec: 100, Taken: 200}.Left())
	for rate, at := range map[uint64]int{57: -1, 58: 2, 81: 0} {
		require.Equal(t, at, Refusing(rate, around), rate)
	}
}

// Limits of one owner for the same part and rank share a number, which no rule of a file has. It is the same whatever other
// limits there are.
func TestNumbers(t *testing.T) {
	part := func(node, scope uint32, under enforce.Kind, text string) Part {
		s, _, err := destination.Parse(text)
		require.NoError(t, err)
		return Part{Place: Place{Node: node, Scope: scope}, RuleSet: enforce.BookAdmin, Under: under, Selector: s, Resolved: s}
	}
	none := FileRules{HasNumber: func(uint32) bool { return false }}
	list := []Part{
		part(1, 11, enforce.KindTree, "10.0.0.0/8"), part(2, 12, enforce.KindTree, "10.0.0.0/8"),
		part(3, 13, enforce.KindUser, "10.0.0.0/8"), part(4, 0, 0, "10.0.0.0/8:443/tcp"),
	}
	made := DestinationsOf(slices.Values(list), none)
	require.Equal(t, made.Numbers[1], made.Numbers[2])
	require.NotEqual(t, made.Numbers[1], made.Numbers[3])
	require.Equal(t, enforce.RuleEverybody|enforce.RuleTCP, made.Numbers[4]&enforce.RuleFlags)
	require.Empty(t, made.Over)
	alone := DestinationsOf(slices.Values(list[2:3]), none)
	require.Equal(t, made.Numbers[3], alone.Numbers[3])
	beside := DestinationsOf(slices.Values(list), FileRules{HasNumber: func(number uint32) bool { return number == made.Numbers[3] }})
	require.NotEqual(t, made.Numbers[3], beside.Numbers[3])
	places := []Place{list[1].Place, list[3].Place}
	require.Equal(t, []enforce.DestinationUse{
		{Rule: made.Numbers[2], Scope: 12, Node: 2}, {Rule: made.Numbers[4], Node: 4},
	}, made.Uses(slices.Values(places)))
}

// What ends by itself is taken out, and all else stays.
func TestEnds(t *testing.T) {
	var w Wanted
	at := func(bootNS uint64) limit.End { return limit.End{BoottimeNS: bootNS} }
	w.Requested[enforce.OwnerAdmin] = limit.Limit{Up: 5, Reserve: limit.Slice{Link: "eth0", PeriodNS: 10, SliceNS: 3, End: at(20)}}
	w.Requested[enforce.OwnerUser] = limit.Limit{Reserve: limit.Slice{Link: "eth0", PeriodNS: 10, SliceNS: 3}}
	w.Timed[enforce.OwnerUser] = desired.Timed{Limit: limit.Limit{Down: 7}, End: at(10)}
	require.False(t, w.HasEnded(9))
	require.True(t, w.HasEnded(10))
	before := w
	w.End(9)
	require.Equal(t, before, w)
	w.End(10)
	require.Equal(t, desired.Timed{}, w.Timed[enforce.OwnerUser])
	require.Equal(t, before.Requested, w.Requested)
	require.True(t, w.HasEnded(20))
	w.End(20)
	require.Equal(t, limit.Limit{Up: 5}, w.Requested[enforce.OwnerAdmin])
	require.Equal(t, before.Requested[enforce.OwnerUser], w.Requested[enforce.OwnerUser])
	require.False(t, w.HasEnded(1<<63))
}
