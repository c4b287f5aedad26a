package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/testutil"
)

// The latest of the clocks without credit on a socket's path binds, if the socket itself waits for its departure time.
func TestWhyVerdicts(t *testing.T) {
	turn := func(node uint32, d enforce.Direction, ahead time.Duration) enforce.Turn {
		return enforce.Turn{Node: node, Direction: d, Ahead: ahead, Burst: 10 * time.Millisecond}
	}
	for name, c := range map[string]struct {
		look  enforce.SocketLook
		binds turnKey
		none  bool
	}{
		"the later of two": {
			look:  enforce.SocketLook{Waits: true, Departs: time.Millisecond, Turns: []enforce.Turn{turn(1, enforce.Up, 2*time.Millisecond), turn(2, enforce.Up, 3*time.Millisecond)}},
			binds: turnKey{2, api.Up},
		},
		"paid a moment ago: the timer is late": {
			look:  enforce.SocketLook{Waits: true, Turns: []enforce.Turn{turn(1, enforce.Up, -time.Millisecond), turn(2, enforce.Up, -9*time.Millisecond)}},
			binds: turnKey{1, api.Up},
		},
		"credit is left": {
			look: enforce.SocketLook{Waits: true, Turns: []enforce.Turn{turn(1, enforce.Up, -9*time.Millisecond)}}, none: true,
		},
		"its turn was long ago: others of its program wait": {
			look: enforce.SocketLook{Waits: true, Departs: -time.Second, Turns: []enforce.Turn{turn(1, enforce.Up, 5*time.Millisecond)}}, none: true,
		},
		"nothing to send": {
			look: enforce.SocketLook{Departs: time.Millisecond, Turns: []enforce.Turn{turn(1, enforce.Up, 5*time.Millisecond)}}, none: true,
		},
		"little credit may there be at all": {
			look: enforce.SocketLook{Waits: true, Turns: []enforce.Turn{{Node: 1, Ahead: -900 * time.Microsecond, Burst: time.Millisecond}}}, none: true,
		},
		"a fixed part": {
			look:  enforce.SocketLook{Waits: true, Static: true, Departs: -time.Second, Turns: []enforce.Turn{turn(1, enforce.Up, -9*time.Millisecond), turn(2, enforce.Total, -8*time.Millisecond)}},
			binds: turnKey{2, api.Total},
		},
		"a queue of what comes in": {
			look:  enforce.SocketLook{Turns: []enforce.Turn{turn(1, enforce.Down, 0), turn(2, enforce.Down, 9*time.Millisecond)}},
			binds: turnKey{2, api.Down},
		},
		"an empty queue": {look: enforce.SocketLook{Turns: []enforce.Turn{turn(1, enforce.Down, 0)}}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := whyLook{bound: make(map[turnKey]int)}
			l.add(c.look)
			if c.none {
				require.Empty(t, l.bound)
				return
			}
			require.Equal(t, map[turnKey]int{c.binds: 1}, l.bound)
		})
	}
}

// A user may have only some connections measured at the same time, and all users together, too.
func TestMeasurementsPerUser(t *testing.T) {
	var a askers
	for range auth.MaxMeasuredPerUser {
		_, err := a.enter(auth.Actor{UID: 5})
		require.NoError(t, err)
	}
	_, err := a.enter(auth.Actor{UID: 5})
	testutil.RequireCode(t, api.CodeConflict, err)
	leave, err := a.enter(auth.Actor{UID: 6})
	require.NoError(t, err)
	leave()
	_, own, all := a.Enter(6, 0, 0)
	require.Equal(t, []int{0, auth.MaxMeasuredPerUser}, []int{own, all}, "the other user has left")
	_, err = a.enter(root)
	require.NoError(t, err)
}

// A process may have a socket open that another user's process uses. Limits on that socket's traffic are hidden.
func TestWhyHidesOthersDestinations(t *testing.T) {
	n := &Node{
		ID: 5, Resolved: identity.Resolved{Subject: api.Subject{Kind: api.KindTo, ID: "203.0.113.7@" + ofBob}, Kind: enforce.KindDestination, UID: bobs.UID},
		Limits: []Limit{{Limit: api.Limit{Owner: api.OwnerAdmin, BytesPerSec: 1e6}}}, Holding: limit.Owners{enforce.OwnerAdmin: {Up: 1e6}},
		To: &Destination{Under: 4}, Users: Users{Bound: bobs.UID},
	}
	s := Empty().With(map[uint32]*Node{5: n}, nil)
	limits := func(by auth.Actor, chargedTo uint32) string {
		w := whyLooks{inForce: s, by: by, pid: 77, processes: whyProcesses{byID: map[int]int{77: 0}}}
		l := &whyLook{last: enforce.SocketLook{SocketStats: enforce.SocketStats{PID: chargedTo, Nodes: []uint32{5}}}}
		return told(t, w.limits(l), nil)
	}
	for by, sees := range map[auth.Actor]bool{root: true, {UID: eves.UID, Admin: true}: true, bobs: true, eves: false} {
		require.Equal(t, sees, strings.Contains(limits(by, 78), secret), "uid %d", by.UID)
	}
	require.Contains(t, limits(eves, 77), secret, "what the process itself sends is its user's")
}
