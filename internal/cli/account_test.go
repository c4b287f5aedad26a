package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account/accounttest"
)

// The daemon looks up users for administrators only. The netnice of other users sends the number.
func TestUserHere(t *testing.T) {
	accounts := accounttest.TwoPlaces(t)
	for name, want := range map[string]string{"ann": "ann", "bob": "70001", "eve": "eve", "70001": "70001", "-x": "-x"} {
		s := userHere(api.Subject{Kind: api.KindUser, ID: name}, accounts)
		require.Equal(t, api.Subject{Kind: api.KindUser, ID: want}, s)
	}
}
