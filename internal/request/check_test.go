package request

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

func ptr[T any](v T) *T { return &v }

// requireBad checks that a request cannot be meant so, and returns the rest of the answer.
func requireBad(t *testing.T, err error) *api.Error {
	t.Helper()
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, api.CodeBadRequest, e.Code, "%v", err)
	return e
}

// The error for an impossible request names a command that does nearly the same.
func TestRemediesOfBadRequests(t *testing.T) {
	bob := api.Subject{Kind: api.KindUser, ID: "bob"}
	wanted := func(s api.Subject, w api.Wish) error {
		return CheckLimit(auth.Actor{}, api.SetRequest{Subject: s, Wish: w})
	}
	reserve := func(r api.Reservation) api.Wish { return api.Wish{Reserve: &r} }
	for want, err := range map[string]error{
		"netnice set user:bob --burst 10ms":                              wanted(bob, api.Wish{BurstNS: ptr(uint64(1e12))}),
		"netnice set user:bob --weight 100":                              wanted(bob, api.Wish{Weight: ptr(uint32(10001))}),
		"netnice set user:bob --dscp cs1":                                wanted(bob, api.Wish{DSCP: ptr(64)}),
		"netnice set user:bob --up 10MB/s":                               wanted(bob, api.Wish{}),
		"netnice reserve user:bob --link eth0 --period 10ms --slice 2ms": wanted(bob, reserve(api.Reservation{Link: "eth0@7", PeriodNS: 2e9, SliceNS: 1e6})),
		"netnice reserve --user NAME --link eth0 --grant 20%":            wanted(api.Subject{Kind: api.KindHost}, api.Wish{Grant: &api.Grant{Link: "eth0", PPM: 1}}),
		"netnice reserve pid:7 --link eth1 --period 10ms --slice 2ms --for 1h": wanted(api.Subject{Kind: api.KindPID, ID: "7"},
			reserve(api.Reservation{Link: "eth1", PeriodNS: 10e6, SliceNS: 1e6, ForNS: 1 << 62})),
	} {
		require.Equal(t, want, requireBad(t, err).Hint)
	}
}
