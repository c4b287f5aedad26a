package limit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Changes of the wall clock, and a reboot, leave what is left of a time as it is, or take the wall clock's word for it.
func TestEnd(t *testing.T) {
	const hour, minute = uint64(time.Hour), uint64(time.Minute)
	now := Moment{BoottimeNS: 5 * hour, UnixNS: int64(1e18)}
	end := now.In(hour)
	require.Equal(t, End{BoottimeNS: 6 * hour, UnixNS: int64(1e18) + int64(hour), SpanNS: hour}, end)
	require.False(t, end.IsOver(6*hour-1))
	require.True(t, end.IsOver(6*hour))
	require.Equal(t, minute, end.LeftNS(6*hour-minute))
	require.EqualValues(t, 1, end.LeftNS(7*hour), "it is not over before it was ended")

	require.Equal(t, End{}, now.In(0))
	require.Equal(t, End{}, End{}.InBootOf(now))
	require.False(t, End{}.IsOver(1<<63))
	require.Zero(t, End{}.LeftNS(7*hour))

	for what, c := range map[string]struct {
		passed time.Duration // on the wall clock, until the machine was there again
		left   uint64
	}{
		"a reboot of ten minutes":        {10 * time.Minute, 50 * minute},
		"the time was over":              {2 * time.Hour, 1},
		"the wall clock was set back":    {-time.Hour, hour},
		"a wall clock without a battery": {-time.Duration(1e18), hour},
	} {
		booted := Moment{BoottimeNS: minute, UnixNS: now.UnixNS + int64(c.passed)}
		moved := end.InBootOf(booted)
		require.Equal(t, End{BoottimeNS: minute + c.left, UnixNS: booted.UnixNS + int64(c.left), SpanNS: hour}, moved, what)
	}
	spoilt := End{UnixNS: -1 << 63, SpanNS: 1 << 63}
	require.True(t, spoilt.InBootOf(now).IsOver(now.BoottimeNS+1))
}

// Files before version 13 of the state have the end of a reservation on the wall clock alone.
func TestFormerEndOfSlice(t *testing.T) {
	now := Moment{BoottimeNS: 70, UnixNS: 1000}
	s := Slice{Link: "eth0", PeriodNS: 10, SliceNS: 3}
	require.Equal(t, s, s.InThisForm(now))
	former, want := s, s
	former.UntilNS, want.End = 1500, End{BoottimeNS: 570, UnixNS: 1500, SpanNS: 500}
	require.Equal(t, want, former.InThisForm(now))
	former.UntilNS, want.End = 900, End{BoottimeNS: 71, UnixNS: 1001, SpanNS: 1}
	require.Equal(t, want, former.InThisForm(now))
	require.Equal(t, want, want.InThisForm(Moment{BoottimeNS: 1e9}))
}
