package inetd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/account/accounttest"
)

// A session of inetd changes to a user of the files or of a directory service, with all groups of that user.
func TestCredentialsOf(t *testing.T) {
	accounts := accounttest.TwoPlaces(t)
	for _, c := range []struct {
		user, group string
		want        credentials
	}{
		{"ann", "", credentials{1000, 1000, []int{1000, 10}}},
		{"bob", "", credentials{70001, 70000, []int{70000, 20, 70009}}},
		{"bob", "wheel", credentials{70001, 10, []int{10, 70000, 20, 70009}}},
		{"ann", "eves", credentials{1000, 70009, []int{70009, 1000, 10}}},
	} {
		got, err := credentialsOf(t.Context(), accounts, c.user, c.group)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s:%s", c.user, c.group)
	}
	_, err := credentialsOf(t.Context(), accounts, "eve", "")
	require.ErrorIs(t, err, account.ErrUnknown)
	_, err = credentialsOf(t.Context(), accounts, "ann", "nobodies")
	require.ErrorIs(t, err, account.ErrUnknown)
}
