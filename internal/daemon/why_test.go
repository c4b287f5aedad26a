package daemon

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// Of the clocks on a socket's path that have no credit left the latest binds, if the
// socket itself waits for its turn.
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

// What is said of a socket: each owner's limit, the lower of which holds, who set it, and
// who is denied.
func TestWhy(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	cmd := sleeper(t)
	pid := cmd.Process.Pid
	node := h.mustSet(root, pidSubject(cmd), up(2e6))
	fake.SetLooks(
		enforce.SocketLook{
			SocketStats: enforce.SocketStats{PID: uint32(pid), Nodes: []uint32{node.ID}, Family: unix.AF_INET, LocalPort: 80, RemotePort: 5, SocketRate: 7e6, UnsentBytes: 9},
			Protocol:    unix.IPPROTO_TCP, Waits: true,
			Turns: []enforce.Turn{{Ahead: time.Millisecond}, {Node: node.ID, Ahead: 3 * time.Millisecond}},
		},
		enforce.SocketLook{SocketStats: enforce.SocketStats{PID: uint32(pid) + 1, Nodes: []uint32{node.ID}}},
	)
	w, err := h.Why(context.Background(), root, pid, -1, 100*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, w.Sockets, 1, "the other process's is not asked for")
	got := w.Sockets[0]
	require.Equal(t, api.BoundByLimit, got.Up)
	require.Equal(t, "0.0.0.0:80", got.Local)
	owners, binds := []string{}, []string{}
	for _, l := range got.Limits {
		owners = append(owners, l.Owner)
		if l.Binds {
			require.Equal(t, 1.0, l.Bound)
			binds = append(binds, strconv.FormatUint(l.BytesPerSec, 10))
		}
	}
	require.Equal(t, "setsockopt", owners[0])
	require.Len(t, owners, 2)
	require.Len(t, binds, 1)

	// What it may receive by an option: its own queue binds.
	own := func(s enforce.SocketLook) {
		s.SocketStats = enforce.SocketStats{PID: uint32(pid), Family: unix.AF_INET, LocalPort: 81, ReceiveRate: 5e6}
		s.Protocol = unix.IPPROTO_UDP
		fake.SetLooks(s)
	}
	receiving := func() api.WhySocket {
		t.Helper()
		w, err := h.Why(context.Background(), root, pid, -1, 100*time.Millisecond)
		require.NoError(t, err)
		require.Len(t, w.Sockets, 1)
		require.Len(t, w.Sockets[0].Limits, 1)
		require.Equal(t, "socket:TCP_RCVRATE down", limitName(w.Sockets[0].Limits[0]))
		require.Equal(t, uint64(5e6), w.Sockets[0].Limits[0].BytesPerSec)
		return w.Sockets[0]
	}
	own(enforce.SocketLook{Own: enforce.FirstSocketNode, Turns: []enforce.Turn{{Direction: enforce.Down, Ahead: time.Millisecond}}})
	got = receiving()
	require.Equal(t, api.BoundByLimit, got.Down)
	require.True(t, got.Limits[0].Holds && got.Limits[0].Binds)
	own(enforce.SocketLook{Own: enforce.FirstSocketNode, Turns: []enforce.Turn{{Direction: enforce.Down}}})
	got = receiving()
	require.Equal(t, api.NothingComes, got.Down)
	require.True(t, got.Limits[0].Holds && !got.Limits[0].Binds)
	own(enforce.SocketLook{Own: enforce.FirstSocketNode, Loopback: true})
	require.False(t, receiving().Limits[0].Holds, "lo has no queue")
	own(enforce.SocketLook{})
	require.False(t, receiving().Limits[0].Enforced, "it has no node yet")

	var a askers
	for range auth.MaxMeasuredPerUser {
		_, err := a.enter(auth.Actor{UID: 5})
		require.NoError(t, err)
	}
	_, err = a.enter(auth.Actor{UID: 5})
	requireCode(t, api.CodeConflict, err)
	leave, err := a.enter(auth.Actor{UID: 6})
	require.NoError(t, err)
	leave()
	require.Len(t, a.users, 1)
	_, err = a.enter(root)
	require.NoError(t, err)

	_, err = h.Why(context.Background(), auth.Actor{UID: node.UID + 1}, pid, -1, 100*time.Millisecond)
	requireCode(t, api.CodeDenied, err)
	_, err = h.Why(context.Background(), root, pid, 0, 100*time.Millisecond)
	requireCode(t, api.CodeBadRequest, err)
	_, err = h.Why(context.Background(), root, pid, 999, 100*time.Millisecond)
	requireCode(t, api.CodeNotFound, err)
	_, err = h.Why(context.Background(), root, 1, -1, 100*time.Millisecond)
	requireCode(t, api.CodeBadRequest, err)
}

func limitName(l api.WhyLimit) string { return l.Subject.String() + " " + string(l.Direction) }
