package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/cpu"
)

// The error for an impossible request names a command that does nearly the same.
func TestRemediesOfBadRequests(t *testing.T) {
	most := cpu.MostPower * cpu.Online()
	bob := api.Subject{Kind: api.KindUser, ID: "bob"}
	wanted := func(s api.Subject, w api.Wish) error { return checkWish(root, api.SetRequest{Subject: s, Wish: w}) }
	reserve := func(r api.Reservation) api.Wish { return api.Wish{Reserve: &r} }
	for want, err := range map[string]error{
		fmt.Sprintf("netnice power 7 %d", most):                          checkPower(api.PowerRequest{PID: 7, Power: most + 300}),
		"netnice power 7 -255":                                           checkPower(api.PowerRequest{PID: 7, Power: -300}),
		"netnice power 7 40 --slots 1ms":                                 checkPower(api.PowerRequest{PID: 7, Power: 30, SlotNS: 1e6, Strict: true}),
		"netnice reserve --pid 7 --rate 400mbit --cpu auto":              checkPower(api.PowerRequest{PID: 7, Power: 30, AutoBytesPerSec: 1e6}),
		"netnice reserve --pid 7 --cpu-period 20ms --cpu-slice 5ms":      checkPower(api.PowerRequest{PID: 7, SliceNS: 5e6, PeriodNS: 5e9}),
		"netnice set user:bob --burst 10ms":                              wanted(bob, api.Wish{BurstNS: ptr(uint64(1e12))}),
		"netnice set user:bob --weight 100":                              wanted(bob, api.Wish{Weight: ptr(uint32(10001))}),
		"netnice set user:bob --dscp cs1":                                wanted(bob, api.Wish{DSCP: ptr(64)}),
		"netnice set user:bob --up 10MB/s":                               wanted(bob, api.Wish{}),
		"netnice reserve user:bob --link eth0 --period 10ms --slice 2ms": wanted(bob, reserve(api.Reservation{Link: "eth0@7", PeriodNS: 2e9, SliceNS: 1e6})),
		"netnice reserve --user NAME --link eth0 --grant 20%":            wanted(api.Subject{Kind: api.KindHost}, api.Wish{Grant: &api.Grant{Link: "eth0", PPM: 1}}),
		"netnice reserve pid:7 --link eth1 --period 10ms --slice 2ms --for 1h": wanted(api.Subject{Kind: api.KindPID, ID: "7"},
			reserve(api.Reservation{Link: "eth1", PeriodNS: 10e6, SliceNS: 1e6, ForNS: 1 << 62})),
	} {
		require.Equal(t, want, requireFault(t, api.CodeBadRequest, err).Hint)
	}
}

// The hint for a group's first command is the whole command, with the processes that were named.
func TestRemedyOfAGroupWithoutARate(t *testing.T) {
	request := api.SetRequest{Subject: api.Subject{Kind: api.KindGroup, ID: "fair-7"}, Members: []api.Member{{PID: 7}, {PID: 8, Weight: 300}}}
	require.Equal(t, "netnice fair --total 10MB/s 7 8=300", fairCommand(request))
	request.Subject.ID = "backups"
	require.Equal(t, "netnice fair --group backups --total 10MB/s 7 8=300", fairCommand(request))
}

// The hint for a caller without the right to set a CPU share is the command that was meant, not another.
func TestPowerCommand(t *testing.T) {
	for want, asked := range map[string]powerWish{
		"sudo netnice power 7 30":                                                       {Power: 30},
		"sudo netnice power 7 0":                                                        {},
		"sudo netnice power 7 -20":                                                      {Power: -20},
		"sudo netnice power 7 30 --slots 1ms":                                           {Power: 30, SlotNS: 1e6},
		"sudo netnice power 7 30 --strict":                                              {Power: 30, Strict: true},
		"sudo netnice reserve --pid 7 --cpu-period 20ms --cpu-slice 5ms":                {PeriodNS: 20e6, SliceNS: 5e6},
		"sudo netnice reserve --pid 7 --cpu-period 100ms --cpu-slice 2.5ms --cpu-extra": {PeriodNS: 100e6, SliceNS: 25e5, Extra: true},
		"sudo netnice reserve --pid 7 --rate 50MB/s --cpu auto":                         {Auto: auto{RateBytesPerSec: 50e6}, PeriodNS: 20e6, SliceNS: 1e6},
	} {
		require.Equal(t, want, powerCommand(7, asked))
		err := auth.Check(auth.Actor{UID: 4242}, auth.Power, auth.Target{Subject: api.Subject{Kind: api.KindPID, ID: "7"}, Command: powerCommand(7, asked)})
		require.Equal(t, want, requireFault(t, api.CodeDenied, err).Hint)
	}
}
