package statefile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUnwrittenIsTriedAgain(t *testing.T) {
	var u unwritten
	now := time.Unix(0, 0)
	require.True(t, u.worth("a", now))
	require.False(t, u.due("a", now))
	require.True(t, u.note("a", unix.ENOSPC, now))
	require.False(t, u.note("b", nil, now))
	require.False(t, u.worth("a", now.Add(writeAgainFirst-1)))
	require.True(t, u.worth("b", now))
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		wait *= time.Second
		require.False(t, u.due("a", now.Add(wait-1)))
		now = now.Add(wait)
		require.True(t, u.due("a", now))
		require.False(t, u.note("a", unix.ENOSPC, now), "it is no news")
	}
	require.True(t, u.worth("a", now.Add(writeAgainFirst)))
	require.True(t, u.note("a", unix.EROFS, now), "that is")
	files := u.all()
	require.Len(t, files, 1)
	require.EqualValues(t, 10, u.count())
	require.Equal(t, time.Unix(0, 0), files["a"].Since)
	require.True(t, u.note("a", nil, now))
	require.NoError(t, u.of("a"))
}
