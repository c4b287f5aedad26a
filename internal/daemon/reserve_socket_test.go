package daemon

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/units"
)

// The reservations of a user's sockets and processes fit into the user's grant, and all reservations fit into the rate
// of the link. A change of the link updates their worth, and reservations that no longer fit go.
func TestReservedBySockets(t *testing.T) {
	const uid = 61234
	user := auth.Actor{UID: uid, GID: uid}
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	device := someDevice(t)
	link := "link:" + device
	number, id := uint64(0), uint32(0)
	ask := func(cookie uint64, admin bool, sliceUS uint64) enforce.Answer {
		t.Helper()
		number++
		s := enforce.SocketReservation{Cookie: cookie, UID: uid, Link: id}
		if cookie != 0 {
			fake.Socket(number, s)
		}
		return h.ask(enforce.Request{Number: number, PID: 4711, UID: uid, GID: uid, Admin: admin, Reserve: &enforce.SocketSlice{PeriodNS: 1e7, SliceNS: sliceUS * 1000}})
	}
	answers := func(what string, a enforce.Answer, errno unix.Errno, worth, left uint64) {
		t.Helper()
		require.Equal(t, [3]uint64{uint64(errno), worth, left}, [3]uint64{uint64(a.Errno), a.BytesPerSec, a.LeftBytesPerSec}, what)
	}
	answers("no link", ask(1, false, 1000), unix.ENODEV, 0, 0)
	id = h.mustSet(root, link, up(10e6)).ID
	answers("no socket", ask(0, false, 1000), unix.ENODEV, 0, 0)
	answers("nothing granted", ask(1, false, 1000), unix.EPERM, 0, 0)
	answers("an administrator", ask(1, true, 1000), 0, 1e6, 8.5e6)
	answers("released", ask(1, true, 0), 0, 0, 9.5e6)

	grant := func(ppm uint32) {
		t.Helper()
		h.mustSet(root, "user:61234", api.Wish{Grant: &api.Grant{Link: device, PPM: ppm}})
	}
	grant(300_000)
	answers("granted", ask(1, false, 1000), 0, 1e6, 2e6)
	answers("too much", ask(2, false, 2100), unix.EBUSY, 0, 2e6)
	answers("a slice longer than its period", ask(2, false, 11000), unix.EINVAL, 0, 0)
	answers("another", ask(2, false, 2000), 0, 2e6, 0)
	answers("less of it", ask(2, false, 500), 0, 5e5, 15e5)
	node := h.mustSet(user, "user:61234", api.Wish{Reserve: &api.Reservation{Link: device, PeriodNS: 1e7, SliceNS: 15e5, ForNS: uint64(time.Second)}})
	require.EqualValues(t, 15e5, node.MinBytesPerSec)
	require.NotNil(t, node.Granted)
	_, err := h.set(user, "user:61234", api.Wish{Reserve: &api.Reservation{Link: device, PeriodNS: 1e7, SliceNS: 2e6}})
	require.ErrorContains(t, err, "more than you were granted of "+link+": "+units.FormatRate(3e6, units.Bytes))
	_, err = h.set(user, "user:61234", api.Wish{Grant: &api.Grant{Link: device, PPM: 900_000}})
	require.ErrorIs(t, err, auth.ErrDenied)

	links, err := h.nodesFor(link)
	require.NoError(t, err)
	require.EqualValues(t, 3e6, links[0].PromisedBytesPerSec)
	require.EqualValues(t, 9.5e6, links[0].PromisableBytesPerSec)
	h.eventually("the time is over", func() bool {
		list, err := h.nodesFor("user:61234")
		return err == nil && list[0].Reserved == nil
	})

	h.mustSet(root, link, up(20e6))
	reserved, err := fake.Reserved()
	require.NoError(t, err)
	require.EqualValues(t, []uint64{2e6, 1e6}, []uint64{reserved[0].BytesPerSec, reserved[1].BytesPerSec}, "the same part of a faster link")
	grant(100_000)
	reserved, err = fake.Reserved()
	require.NoError(t, err)
	require.Len(t, reserved, 1, "of the later socket it has gone")
	_, err = h.remove(root, "user:61234")
	require.NoError(t, err)
	reserved, err = fake.Reserved()
	require.NoError(t, err)
	require.Empty(t, reserved, "nothing is granted any more")
	grant(100_000)
	answers("again", ask(1, false, 1000), 0, 2e6, 0)
	_, err = h.remove(root, link)
	require.NoError(t, err)
	h.eventually("nothing is reserved of a link without a limit", func() bool {
		reserved, err := fake.Reserved()
		return err == nil && len(reserved) == 0
	})
}

// A user's process that has ended keeps its limits while its connections drain. What it had reserved is not a part of the
// user's grant any more, nor of the link.
func TestReservedByEnded(t *testing.T) {
	testutil.RequireRoot(t)
	const uid = 61234
	user := auth.Actor{UID: uid, GID: uid}
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	device := someDevice(t)
	link := h.mustSet(root, "link:"+device, up(10e6)).ID
	h.mustSet(root, "user:61234", api.Wish{Grant: &api.Grant{Link: device, PPM: 900_000}})
	reserve := func(cmd *exec.Cmd) (api.SetResponse, error) {
		return h.set(user, pidSubject(cmd), api.Wish{Reserve: &api.Reservation{Link: device, PeriodNS: 1e7, SliceNS: 6e6}})
	}
	ask := func(number uint64) enforce.Answer {
		fake.Socket(number, enforce.SocketReservation{Cookie: 1, UID: uid, Link: link})
		return h.ask(enforce.Request{Number: number, PID: 4711, UID: uid, GID: uid, Ask: true, Reserve: &enforce.SocketSlice{}})
	}
	former, next := sleeperAs(t, uid), sleeperAs(t, uid)
	answer, err := reserve(former)
	require.NoError(t, err)
	_, err = reserve(next)
	require.ErrorIs(t, err, auth.ErrDenied)
	require.EqualValues(t, 3e6, ask(1).LeftBytesPerSec)

	fake.SetSockets(enforce.SocketStats{Nodes: []uint32{answer.Node.ID}, UnsentBytes: 1})
	h.end(former, answer.Node.ID)
	_, err = reserve(next)
	require.ErrorIs(t, err, auth.ErrDenied, "a child of it lives")
	fake.SetStats(enforce.NodeStats{ID: answer.Node.ID})
	require.EqualValues(t, 9e6, ask(2).LeftBytesPerSec)
	_, err = reserve(next)
	require.NoError(t, err)
	_, holds := fake.Spec(answer.Node.ID)
	require.True(t, holds, "the limit ended before the connection")
}

// The end of a reservation is on a clock that nobody sets, and outlives the daemon.
func TestReservationForATimeOverARestart(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	device := someDevice(t)
	h.mustSet(root, "link:"+device, up(10e6))
	reserve := func(d time.Duration) api.Node {
		return h.mustSet(root, "user:61234", api.Wish{Reserve: &api.Reservation{Link: device, PeriodNS: 1e7, SliceNS: 1e6, ForNS: uint64(d)}})
	}
	reserve(0)
	id := reserve(time.Hour).ID
	require.NoError(t, h.stop())
	h = start(t, fake, h.opts)
	h.mu.Lock()
	end := h.nodes.Get(id).Requested[enforce.OwnerAdmin].Reserve.End
	h.mu.Unlock()
	require.EqualValues(t, time.Hour, end.SpanNS)
	require.InDelta(t, identity.BootTimeNS()+uint64(time.Hour), end.BoottimeNS, float64(time.Minute))
	nodes, err := h.nodesFor("user:61234")
	require.NoError(t, err)
	require.InDelta(t, time.Hour, nodes[0].Reserved.ForNS, float64(time.Minute))

	reserve(time.Second)
	h.eventually("its time is over, and what it has replaced does not come back", h.gone(id))
}

// someDevice returns the name of a network device that carries traffic from the machine.
func someDevice(t *testing.T) string {
	t.Helper()
	list, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 {
			return i.Name
		}
	}
	t.Skip("the machine has no network device")
	return ""
}
