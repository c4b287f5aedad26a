package auth

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInFlight(t *testing.T) {
	var f InFlight
	first, own, all := f.Enter(5, 2, 3)
	require.NotNil(t, first)
	require.Zero(t, own+all)
	second, own, all := f.Enter(5, 2, 3)
	require.NotNil(t, second)
	require.Equal(t, []int{1, 1}, []int{own, all})
	refused, own, all := f.Enter(5, 2, 3)
	require.Nil(t, refused, "the user's part is used up")
	require.Equal(t, []int{2, 2}, []int{own, all})
	other, _, _ := f.Enter(6, 2, 3)
	require.NotNil(t, other)
	refused, own, all = f.Enter(7, 2, 3)
	require.Nil(t, refused, "that of all users is used up")
	require.Equal(t, []int{0, 3}, []int{own, all})
	for _, leave := range []func(){first, second, other} {
		leave()
	}
	require.Empty(t, f.users)
	again, own, all := f.Enter(5, 1, math.MaxInt)
	require.NotNil(t, again)
	require.Zero(t, own+all)
}
