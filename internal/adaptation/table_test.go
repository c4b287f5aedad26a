package adaptation

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/testutil"
)

func TestAdaptBeginsAndEnds(t *testing.T) {
	h, p := newHarness(t)
	got, err := h.set(root, api.AdaptRequest{Host: "192.0.2.7", LeastBytesPerSec: 400e3})
	require.NoError(t, err)
	require.Equal(t, 1, h.mem.heldQueues(), "the first datagram finds a queue")
	require.True(t, got.Changed)
	require.Len(t, got.Adapted, 1)
	require.Equal(t, "to:192.0.2.7/udp", got.Adapted[0].Subject.String())
	require.EqualValues(t, 500e3, h.upTo("to:192.0.2.7/udp"), "as it was measured")
	require.Eventually(t, func() bool {
		list := h.List(root)
		return len(list.Adapted) == 1 && list.Adapted[0].BaseNS == 10e6 && list.Adapted[0].By == "fake"
	}, soon, poll)
	require.Equal(t, 1, p.Count())

	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7", StartBytesPerSec: 3e6, MostBytesPerSec: 2e6, TCP: true})
	require.NoError(t, err)
	require.Zero(t, h.upTo("to:192.0.2.7/udp"))
	require.EqualValues(t, 2e6, h.upTo("to:192.0.2.7"), "TCP, too")
	require.Equal(t, 1, p.Count(), "the former path is closed")
	require.Zero(t, h.mem.heldQueues(), "TCP needs none")
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	require.Equal(t, 1, h.mem.heldQueues())
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7", StartBytesPerSec: 3e6, MostBytesPerSec: 2e6, TCP: true})
	require.NoError(t, err)

	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7", Off: true, DryRun: true})
	require.NoError(t, err)
	require.NotZero(t, h.upTo("to:192.0.2.7"))
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.NoError(t, err)
	require.Zero(t, h.upTo("to:192.0.2.7"))
	require.Zero(t, p.Count())
	require.Zero(t, h.mem.heldQueues())
	require.Empty(t, h.mem.Text())
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.ErrorContains(t, err, "no limit follows the path to 192.0.2.7")
}

func TestAdaptRefuses(t *testing.T) {
	h, p := newHarness(t)
	for _, c := range []struct {
		req  api.AdaptRequest
		want string
	}{
		{api.AdaptRequest{}, "no host is named"},
		{api.AdaptRequest{Host: "192.0.2.0/24,example.com"}, "neither a host nor prefixes alone"},
		{api.AdaptRequest{Host: "192.0.2.0/24:53"}, "neither a host nor prefixes alone"},
		{api.AdaptRequest{Host: "192.0.2.0/99"}, "192.0.2.0/99"},
		{api.AdaptRequest{Host: "192.0.2.0/24", Off: true}, "no limits follow the paths to 192.0.2.0/24"},
		{api.AdaptRequest{Host: "127.0.0.1"}, "no address of another host"},
		{api.AdaptRequest{Host: "::"}, "no address of another host"},
		{api.AdaptRequest{Host: "192.0.2.7", SharePPM: 50_000}, "a share of 5% cannot be kept"},
		{api.AdaptRequest{Host: "192.0.2.7", LeastBytesPerSec: 2e6, MostBytesPerSec: 1e6}, "less than at least"},
		{api.AdaptRequest{Host: "192.0.2.7", BacklogNS: 5e6}, "a backlog of 5ms cannot be kept: write 10ms to 1m"},
		{api.AdaptRequest{Host: "192.0.2.0/24", BacklogNS: 61e9}, "a backlog of 1m1s cannot be kept"},
		{api.AdaptRequest{Host: "192.0.2.7", Netns: 1}, "no network namespace 1"},
	} {
		_, err := h.set(root, c.req)
		require.ErrorContains(t, err, c.want)
	}
	_, err := h.set(auth.Actor{UID: 1000}, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "only the administrator")
	p.Silence(true)
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "silent")
	p.Silence(false)
	p.FailMeasuring(errors.New("no train"))
	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "no train")
	require.Zero(t, p.Count())
	require.Empty(t, h.addresses())
	require.Empty(t, h.mem.Text())
}

// followFrom adds a path from another network namespace, as far as lists show.
func (h *harness) followFrom(netns uint32, host, address string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &entry{
		Host: host, Address: netip.MustParseAddr(address), Netns: netns, settings: settings{SharePPM: defaultShare, BacklogNS: defaultBacklog},
		Since: time.Now(), retry: time.Now().Add(time.Hour),
	}
	h.list[a.key()] = a
}

// Off finds a path from another network namespace than the caller's, unless there are several.
func TestAdaptOffFromElsewhere(t *testing.T) {
	h, _ := newHarness(t)
	off := func(host string, netns uint32, named bool) (api.AdaptList, error) {
		return h.set(root, api.AdaptRequest{Host: host, Netns: netns, NetnsNamed: named, Off: true})
	}
	h.followFrom(7, "192.0.2.7", "192.0.2.7")
	_, err := h.set(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.Contains(t, testutil.RequireFault(t, api.CodeConflict, err).Hint, "netnice adapt 192.0.2.7@7 off")
	_, err = off("192.0.2.7", 8, true)
	testutil.RequireCode(t, api.CodeNoLimit, err)
	got, err := off("192.0.2.7", 0, false)
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Adapted[0].Netns)
	require.Empty(t, h.addresses())

	h.followFrom(7, "far.example", "192.0.2.7")
	h.followFrom(7, "far.example", "2001:db8::7")
	h.followFrom(8, "far.example", "192.0.2.8")
	_, err = off("far.example", 0, false)
	require.Equal(t, "netnice adapt far.example@7 off\nnetnice adapt far.example@8 off", testutil.RequireFault(t, api.CodeConflict, err).Hint)
	_, err = off("far.example", 7, true)
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.8"}, h.addresses())
	_, err = off("far.example", 8, false)
	require.NoError(t, err, "the caller's own")
	require.Empty(t, h.addresses())
}

// Off finds prefixes that are followed from another network namespace in the same way.
func TestAdaptOffOfAnAreaElsewhere(t *testing.T) {
	h, _ := newHarness(t)
	const to = "198.51.100.0/24"
	h.mu.Lock()
	a := newArea(to, 7, settings{SharePPM: defaultShare, BacklogNS: defaultBacklog}, nil)
	require.NoError(t, h.mem.SetLimit(t.Context(), a.subject(), AreaLimit, false))
	h.areas[a.key()] = a
	h.mu.Unlock()
	_, err := h.set(root, api.AdaptRequest{Host: to, Netns: 8, NetnsNamed: true, Off: true})
	testutil.RequireCode(t, api.CodeNoLimit, err)
	got, err := h.set(root, api.AdaptRequest{Host: to, Off: true})
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Areas[0].Netns)
	require.Zero(t, h.upTo("to:"+to+"/udp"))
}

func TestAdaptSubject(t *testing.T) {
	a := &entry{Address: netip.MustParseAddr("2001:db8::7")}
	require.Equal(t, "to:2001:db8::7/udp", a.subject().String())
	a.TCP = true
	require.Equal(t, "to:2001:db8::7", a.subject().String())
}

// Lifting the limit by hand ends the following of the path, and the bound on what waits there.
func TestEndsWithItsLimit(t *testing.T) {
	h, p := newHarness(t)
	got, err := h.set(root, api.AdaptRequest{Host: "2001:db8::7"})
	require.NoError(t, err)
	require.NoError(t, h.mem.LiftLimit(t.Context(), got.Adapted[0].Subject))
	h.eventually("it is not followed", func() bool { return len(h.addresses()) == 0 && p.Count() == 0 })
	require.Empty(t, h.mem.Text())
	require.Zero(t, h.mem.heldQueues())
}

// The next table continues from the state of the last one. It forgets hosts whose limits did not come back.
func TestNextTable(t *testing.T) {
	h, p := newHarness(t)
	h.mem.setPeers(t, 0, "203.0.113.7")
	for _, host := range []string{"192.0.2.7", "192.0.2.8", "203.0.113.0/24"} {
		_, err := h.set(root, api.AdaptRequest{Host: host, SharePPM: 300_000, BacklogNS: 200e6})
		require.NoError(t, err)
	}
	h.eventually("the host of the area, too", func() bool { return len(h.addresses()) == 3 })
	require.True(t, h.mem.limit("to:203.0.113.7/udp").met)
	require.False(t, h.mem.limit("to:192.0.2.7/udp").met)
	h.stop()
	require.Zero(t, p.Count())
	require.NoError(t, h.mem.LiftLimit(t.Context(), (&entry{Address: netip.MustParseAddr("192.0.2.8")}).subject()))
	for _, l := range h.mem.limits {
		l.backlog = 0 // the kernel side does not report it
	}
	again := startTable(t, h.mem, p, false)
	require.Equal(t, []api.Subject{{Kind: api.KindTo, ID: "203.0.113.7/udp"}}, again.met)
	require.ElementsMatch(t, []string{"192.0.2.7", "203.0.113.7"}, again.addresses())
	require.EqualValues(t, 200e6, h.mem.limit("to:192.0.2.7/udp").backlog)
	again.eventually("both are followed", func() bool {
		for _, a := range again.List(root).Adapted {
			if a.SharePPM != 300_000 || a.BaseNS != uint64(hostpathtest.RoundTrip) {
				return false
			}
		}
		return p.Count() == 2
	})
}

// After Halt no path is followed and none can begin, until Resume.
func TestHaltAndResume(t *testing.T) {
	h, p := newHarness(t)
	_, err := h.set(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	refused := errors.New("about to leave")
	h.Halt(refused)
	require.Zero(t, p.Count())
	for _, host := range []string{"192.0.2.8", "203.0.113.0/24"} {
		_, err = h.set(root, api.AdaptRequest{Host: host})
		require.ErrorIs(t, err, refused)
	}
	h.Rewrite(func(func()) { t.Error("the file is written after Halt") })
	require.Zero(t, p.Count())
	h.Resume()
	h.eventually("it is followed again", func() bool { return p.Count() == 1 && h.mem.heldQueues() == 1 })
	h.Halt(refused)
	h.Forget()
	require.Empty(t, h.addresses())
	require.Empty(t, h.mem.Text())
}

// A caller who is no administrator sees the hosts that commands name, and not those to which programs send.
func TestListHidesHostsOfAreas(t *testing.T) {
	h, _ := newHarness(t)
	h.mem.setPeers(t, 0, "203.0.113.7")
	for _, host := range []string{"192.0.2.7", "203.0.113.0/24"} {
		_, err := h.set(root, api.AdaptRequest{Host: host})
		require.NoError(t, err)
	}
	h.eventually("both are followed", func() bool { return len(h.addresses()) == 2 })
	list := h.List(auth.Actor{UID: 1000})
	require.Len(t, list.Adapted, 1)
	require.Equal(t, "192.0.2.7", list.Adapted[0].Address)
	require.Len(t, list.Areas, 1)
}

// Each path is closed and each queue is let go, also of requests about the same host at the same time.
func TestSameHostAtOnce(t *testing.T) {
	h, p := newHarness(t)
	until := time.Now().Add(100 * time.Millisecond)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for off := i%2 == 0; time.Now().Before(until); off = !off {
				_, err := h.set(root, api.AdaptRequest{Host: "192.0.2.7", TCP: i == 3, Off: off})
				var refused *api.Error
				if err != nil && (!errors.As(err, &refused) || refused.Code != api.CodeNoLimit) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, _ = h.set(root, api.AdaptRequest{Host: "192.0.2.7", Off: true}) // the last one may have ended it
	require.Empty(t, h.addresses())
	require.Zero(t, p.Count())
	require.Zero(t, h.mem.heldQueues())
	require.Zero(t, h.upTo("to:192.0.2.7/udp")+h.upTo("to:192.0.2.7"))
}
