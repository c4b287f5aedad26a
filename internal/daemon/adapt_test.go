package daemon

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

func adaptHarness(t *testing.T) (*harness, *hostpathtest.Paths, *enforcetest.Kernel) {
	fake, p := &enforcetest.Kernel{}, hostpathtest.New(500e3)
	opts := testOptions(t, fake)
	opts.OpenPath = p.Open
	opts.LookupNames = func(_ context.Context, name string) ([]netip.Addr, error) {
		if name != "far.example" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("192.0.2.7")}, nil
	}
	return start(t, fake, opts), p, fake
}

func (h *harness) adapt(by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	h.t.Helper()
	return h.SetAdapt(context.Background(), by, req)
}

// upTo returns the limit in force on a destination, 0 = none.
func (h *harness) upTo(subject string) uint64 {
	h.t.Helper()
	return h.specTo(subject).Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec
}

// specTo returns the node in force for a destination, the zero value if there is none.
func (h *harness) specTo(subject string) enforce.NodeSpec {
	h.t.Helper()
	list, err := h.Nodes(context.Background(), root)
	require.NoError(h.t, err)
	for _, n := range list.Nodes {
		if n.Subject.String() != subject {
			continue
		}
		spec, ok := h.fake.Spec(n.ID)
		require.True(h.t, ok)
		require.Equal(h.t, enforce.KindDestination, spec.Kind)
		return spec
	}
	return enforce.NodeSpec{}
}

func TestAdaptBeginsAndEnds(t *testing.T) {
	h, p, fake := adaptHarness(t)
	got, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", LeastBytesPerSec: 400e3})
	require.NoError(t, err)
	require.Equal(t, 1, fake.HeldQueues(0), "the first datagram finds a queue")
	require.True(t, got.Changed)
	require.Len(t, got.Adapted, 1)
	require.Equal(t, "to:192.0.2.7/udp", got.Adapted[0].Subject.String())
	require.EqualValues(t, 500e3, h.upTo("to:192.0.2.7/udp"), "as it was measured")
	require.Eventually(t, func() bool {
		list, err := h.Adapted(context.Background(), root)
		return err == nil && len(list.Adapted) == 1 && list.Adapted[0].BaseNS == 10e6 && list.Adapted[0].By == "fake"
	}, soon, poll)
	require.Equal(t, 1, p.Count())

	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", StartBytesPerSec: 3e6, MostBytesPerSec: 2e6, TCP: true})
	require.NoError(t, err)
	require.Zero(t, h.upTo("to:192.0.2.7/udp"))
	require.EqualValues(t, 2e6, h.upTo("to:192.0.2.7"), "TCP, too")
	require.Equal(t, 1, p.Count(), "the former path is closed")
	require.Zero(t, fake.HeldQueues(0), "TCP needs none")
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	require.Equal(t, 1, fake.HeldQueues(0))
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", StartBytesPerSec: 3e6, MostBytesPerSec: 2e6, TCP: true})
	require.NoError(t, err)

	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", Off: true, DryRun: true})
	require.NoError(t, err)
	require.NotZero(t, h.upTo("to:192.0.2.7"))
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.NoError(t, err)
	require.Zero(t, h.upTo("to:192.0.2.7"))
	require.Zero(t, p.Count())
	require.Zero(t, fake.HeldQueues(0))
	require.NoFileExists(t, h.adaptPath())
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.ErrorContains(t, err, "no limit follows the path to 192.0.2.7")
}

func TestAdaptRefuses(t *testing.T) {
	h, p, _ := adaptHarness(t)
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
		_, err := h.adapt(root, c.req)
		require.ErrorContains(t, err, c.want)
	}
	_, err := h.adapt(auth.Actor{UID: 1000}, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "only the administrator")
	p.Silence(true)
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "silent")
	p.Silence(false)
	p.FailMeasuring(errors.New("no train"))
	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.ErrorContains(t, err, "no train")
	require.Zero(t, p.Count())
	list, err := h.Adapted(context.Background(), root)
	require.NoError(t, err)
	require.Empty(t, list.Adapted)
	require.NoFileExists(t, h.adaptPath())
}

// followFrom adds a path from another network namespace, as far as lists show.
func (h *harness) followFrom(netns uint32, host, address string) {
	h.t.Helper()
	h.adapts.mu.Lock()
	defer h.adapts.mu.Unlock()
	a := &adapted{
		Host: host, Address: netip.MustParseAddr(address), Netns: netns, adaptHow: adaptHow{SharePPM: adaptShare, BacklogNS: adaptBacklog},
		Since: time.Now(), retry: time.Now().Add(time.Hour),
	}
	h.adapts.list[a.key()] = a
}

// Off finds a path from another network namespace than the caller's, unless there are several.
func TestAdaptOffFromElsewhere(t *testing.T) {
	h, _, _ := adaptHarness(t)
	off := func(host string, netns uint32, named bool) (api.AdaptList, error) {
		return h.adapt(root, api.AdaptRequest{Host: host, Netns: netns, NetnsNamed: named, Off: true})
	}
	h.followFrom(7, "192.0.2.7", "192.0.2.7")
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.Contains(t, requireFault(t, api.CodeConflict, err).Hint, "netnice adapt 192.0.2.7@7 off")
	_, err = off("192.0.2.7", 8, true)
	requireCode(t, api.CodeNoLimit, err)
	got, err := off("192.0.2.7", 0, false)
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Adapted[0].Netns)
	require.Empty(t, h.followed())

	h.followFrom(7, "far.example", "192.0.2.7")
	h.followFrom(7, "far.example", "2001:db8::7")
	h.followFrom(8, "far.example", "192.0.2.8")
	_, err = off("far.example", 0, false)
	require.Equal(t, "netnice adapt far.example@7 off\nnetnice adapt far.example@8 off", requireFault(t, api.CodeConflict, err).Hint)
	_, err = off("far.example", 7, true)
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.8"}, h.followed())
	_, err = off("far.example", 8, false)
	require.NoError(t, err, "the caller's own")
	require.Empty(t, h.followed())
}

// Off finds prefixes that are followed from another network namespace in the same way.
func TestAdaptOffOfAnAreaElsewhere(t *testing.T) {
	h, _, _ := adaptHarness(t)
	const to = "198.51.100.0/24"
	h.mustSet(root, "to:"+to+"/udp", up(areaLimit))
	h.adapts.mu.Lock()
	a := newArea(to, 7, adaptHow{SharePPM: adaptShare, BacklogNS: adaptBacklog}, nil)
	h.adapts.areas[a.key()] = a
	h.adapts.mu.Unlock()
	_, err := h.adapt(root, api.AdaptRequest{Host: to, Netns: 8, NetnsNamed: true, Off: true})
	requireCode(t, api.CodeNoLimit, err)
	got, err := h.adapt(root, api.AdaptRequest{Host: to, Off: true})
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Areas[0].Netns)
	require.Zero(t, h.upTo("to:"+to+"/udp"))
}

// Each address of a name has a rate of its own.
func TestAdaptName(t *testing.T) {
	h, p, _ := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "near.example"})
	require.ErrorContains(t, err, "near.example")
	got, err := h.adapt(root, api.AdaptRequest{Host: "far.example"})
	require.NoError(t, err)
	require.Len(t, got.Adapted, 2)
	require.NotZero(t, h.upTo("to:192.0.2.7/udp"))
	require.NotZero(t, h.upTo("to:2001:db8::7/udp"))
	_, err = h.adapt(root, api.AdaptRequest{Host: "far.example", Off: true})
	require.NoError(t, err)
	require.Zero(t, h.upTo("to:192.0.2.7/udp")+h.upTo("to:2001:db8::7/udp"))
	require.Zero(t, p.Count())
}

// Lifting the limit by hand ends the following of the path.
func TestAdaptEndsWithItsLimit(t *testing.T) {
	h, p, _ := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "2001:db8::7"})
	require.NoError(t, err)
	s, err := api.ParseSubject("to:2001:db8::7/udp")
	require.NoError(t, err)
	_, err = h.Remove(context.Background(), root, s, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, err := h.Adapted(context.Background(), root)
		return err == nil && len(list.Adapted) == 0 && p.Count() == 0
	}, soon, poll)
	require.NoFileExists(t, h.adaptPath())
}

// The next daemon continues from the state of the last one; without a daemon the rate stays.
func TestAdaptOutlivesTheDaemon(t *testing.T) {
	h, p, fake := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", SharePPM: 300_000})
	require.NoError(t, err)
	require.NoError(t, h.stop())
	require.Zero(t, p.Count())
	require.FileExists(t, h.adaptPath())
	again := start(t, fake, h.opts)
	require.Eventually(t, func() bool {
		list, err := again.Adapted(context.Background(), root)
		return err == nil && len(list.Adapted) == 1 && list.Adapted[0].SharePPM == 300_000 && list.Adapted[0].BaseNS == 10e6
	}, soon, poll)
	require.NotZero(t, again.upTo("to:192.0.2.7/udp"))
	require.NoError(t, again.Down(context.Background(), root))
	require.Eventually(t, func() bool { return p.Count() == 0 }, soon, poll)
	require.NoFileExists(t, h.adaptPath())
}

func TestAdaptReadsNoOtherFile(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	require.NoError(t, os.MkdirAll(opts.StateDir, 0o755))
	require.NoError(t, os.WriteFile(opts.StateDir+"/"+adaptName, []byte(`{"version":9}`), 0o600))
	require.ErrorContains(t, Run(context.Background(), opts), "version")
}

func TestAdaptSubject(t *testing.T) {
	a := &adapted{Address: netip.MustParseAddr("2001:db8::7")}
	require.Equal(t, "to:2001:db8::7/udp", a.subject().String())
	a.TCP = true
	require.Equal(t, "to:2001:db8::7", a.subject().String())
}

// The rate of one host's path bounds no guarantee of a program, which sends elsewhere, too.
func TestAdaptBoundsNoGuarantee(t *testing.T) {
	h, _, _ := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	least := uint64(50e6)
	h.mustSet(root, "pid:"+strconv.Itoa(sleeper(t).Process.Pid), api.Wish{MinBytesPerSec: &least})
}
