package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/netnamespace"
	"github.com/netnice/netnice/internal/testutil"
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
		if !ok {
			continue // it was lifted since
		}
		require.Equal(h.t, enforce.KindDestination, spec.Kind)
		return spec
	}
	return enforce.NodeSpec{}
}

// followed returns the addresses whose paths are followed.
func (h *harness) followed() (list []string) {
	h.t.Helper()
	all, err := h.Adapted(context.Background(), root)
	require.NoError(h.t, err)
	for _, a := range all.Adapted {
		list = append(list, a.Address)
	}
	return list
}

func here(t *testing.T, addresses ...string) (list []enforce.Peer) {
	t.Helper()
	home, err := netnamespace.Of("self")
	require.NoError(t, err)
	for _, text := range addresses {
		list = append(list, enforce.Peer{Address: netip.MustParseAddr(text), Netns: home})
	}
	return list
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
	require.NoFileExists(t, h.adaptationPath())
}

// The next daemon continues from the state of the last one; without a daemon the rate stays.
func TestAdaptOutlivesTheDaemon(t *testing.T) {
	h, p, fake := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", SharePPM: 300_000})
	require.NoError(t, err)
	require.NoError(t, h.stop())
	require.Zero(t, p.Count())
	require.FileExists(t, h.adaptationPath())
	again := start(t, fake, h.opts)
	require.Eventually(t, func() bool {
		list, err := again.Adapted(context.Background(), root)
		return err == nil && len(list.Adapted) == 1 && list.Adapted[0].SharePPM == 300_000 && list.Adapted[0].BaseNS == 10e6
	}, soon, poll)
	require.NotZero(t, again.upTo("to:192.0.2.7/udp"))
	require.NoError(t, again.Down(context.Background(), root))
	require.Eventually(t, func() bool { return p.Count() == 0 }, soon, poll)
	require.NoFileExists(t, h.adaptationPath())
}

func TestAdaptReadsNoOtherFile(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	require.NoError(t, os.MkdirAll(opts.StateDir, 0o755))
	require.NoError(t, os.WriteFile(opts.StateDir+"/"+adaptation.FileName, []byte(`{"version":9}`), 0o600))
	require.ErrorContains(t, Run(context.Background(), opts), "version")
}

// The rate of one host's path bounds no guarantee of a program, which sends elsewhere, too.
func TestAdaptBoundsNoGuarantee(t *testing.T) {
	h, _, _ := adaptHarness(t)
	_, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	least := uint64(50e6)
	h.mustSet(root, "pid:"+strconv.Itoa(sleeper(t).Process.Pid), api.Wish{MinBytesPerSec: &least})
}

// The daemon follows the prefixes of rules as long as the rules ask for it. A command's parameters for the same prefix
// take precedence.
func TestAdaptByRules(t *testing.T) {
	fake, p := &enforcetest.Kernel{}, hostpathtest.New(500e3)
	const to, text = "192.0.2.0/24", "[[rule]]\nname = 'paths'\nto = '192.0.2.0/24'\nprotocol = 'udp'\nadapt = '30%'\nup = '1MB/s'\n"
	fake.SetPeers(here(t, "192.0.2.7", "192.0.2.9")...)
	c := newClerk(t, fake, text, func(o *Options) { o.OpenPath = p.Open })
	c.eventually("both are followed", func() bool { return len(c.followed()) == 2 })
	require.EqualValues(t, 500e3, c.upTo("to:192.0.2.9/udp"))
	all, err := c.Adapted(context.Background(), root)
	require.NoError(t, err)
	require.Equal(t, "paths", all.Areas[0].Rule.Name)
	require.EqualValues(t, 300_000, all.Adapted[0].SharePPM)
	require.EqualValues(t, 1e6, all.Adapted[0].MostBytesPerSec)
	list := c.reload()
	require.Equal(t, 2, list.Rules[0].Nodes, "hosts that are followed")
	require.EqualValues(t, 300_000, list.Rules[0].AdaptSharePPM)
	_, err = c.adapt(root, api.AdaptRequest{Host: to, Off: true})
	testutil.RequireCode(t, api.CodeConflict, err)
	require.ErrorContains(t, err, "netnice.toml:1")

	_, err = c.adapt(root, api.AdaptRequest{Host: to, SharePPM: 700_000})
	require.NoError(t, err)
	c.eventually("as the command says", func() bool {
		all, err := c.Adapted(context.Background(), root)
		return err == nil && len(all.Adapted) == 2 && all.Adapted[0].SharePPM == 700_000 && all.Areas[0].Rule == nil
	})
	got, err := c.adapt(root, api.AdaptRequest{Host: to, Off: true})
	require.NoError(t, err)
	require.Len(t, got.Warnings, 1, "that the rule comes back")
	c.eventually("as the rule says", func() bool {
		all, err := c.Adapted(context.Background(), root)
		return err == nil && len(all.Adapted) == 2 && all.Adapted[0].SharePPM == 300_000
	})

	require.NoError(t, c.stop())
	again := start(t, fake, c.opts)
	again.eventually("the next daemon goes on", func() bool { return len(again.followed()) == 2 })
	c.Write("")
	_, err = again.ReloadRules(context.Background(), root)
	require.NoError(t, err)
	again.eventually("it ends with the rule", func() bool { return len(again.followed()) == 0 && p.Count() == 0 })
	require.Zero(t, again.upTo("to:192.0.2.9/udp")+again.upTo("to:192.0.2.0/24/udp"))
	require.NoFileExists(t, again.adaptationPath())
}

// The next daemon continues to follow an area; lifting the limit on all of it ends its hosts, too.
func TestAdaptAreaOutlivesTheDaemon(t *testing.T) {
	h, p, fake := adaptHarness(t)
	fake.SetPeers(here(t, "192.0.2.7")...)
	_, err := h.adapt(root, api.AdaptRequest{Host: "any"})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(h.followed()) == 1 }, soon, poll)
	require.NoError(t, h.stop())
	fake.SetPeers(here(t, "192.0.2.7", "192.0.2.8")...)
	again := start(t, fake, h.opts)
	require.Eventually(t, func() bool { return len(again.followed()) == 2 }, soon, poll)
	s, err := api.ParseSubject("to:any/udp")
	require.NoError(t, err)
	_, err = again.Remove(context.Background(), root, s, false)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(again.followed()) == 0 && p.Count() == 0 }, soon, poll)
	require.Zero(t, again.upTo("to:192.0.2.7/udp"))
	require.NoFileExists(t, h.adaptationPath())
}

// The backlog of a host is bounded from the beginning, by default to a second, whatever the rate is later. The kernel
// does not report the bound, so the next daemon takes it from its file.
func TestAdaptBacklog(t *testing.T) {
	const to = "to:192.0.2.7/udp"
	h, p, fake := adaptHarness(t)
	got, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.7"})
	require.NoError(t, err)
	require.EqualValues(t, time.Second, got.Adapted[0].BacklogNS)
	require.EqualValues(t, time.Second, h.specTo(to).BacklogNS)
	got, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", BacklogNS: 200e6})
	require.NoError(t, err)
	require.EqualValues(t, 200e6, got.Adapted[0].BacklogNS)
	require.EqualValues(t, 200e6, h.specTo(to).BacklogNS)
	s, err := api.ParseSubject(to)
	require.NoError(t, err)
	_, err = h.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: api.Wish{UpBytesPerSec: ptr(uint64(1e6))}})
	require.NoError(t, err)
	require.EqualValues(t, 200e6, h.specTo(to).BacklogNS, "at another rate")

	forget := func() {
		spec := h.specTo(to)
		require.NoError(t, h.stop())
		spec.BacklogNS = 0
		fake.Put(spec)
	}
	forget()
	h = start(t, fake, h.opts)
	require.Eventually(t, func() bool { return h.specTo(to).BacklogNS == 200e6 }, soon, poll)

	// A file of the previous version has no bound.
	forget()
	text, err := os.ReadFile(h.adaptationPath())
	require.NoError(t, err)
	require.Contains(t, string(text), `,"backlog_ns":200000000`)
	older := strings.ReplaceAll(strings.ReplaceAll(string(text), `,"backlog_ns":200000000`, ""), `"version":4`, `"version":3`)
	require.NoError(t, os.WriteFile(h.adaptationPath(), []byte(older), 0o600))
	h = start(t, fake, h.opts)
	require.Eventually(t, func() bool { return h.specTo(to).BacklogNS == uint64(time.Second) }, soon, poll)
	var state adaptation.Saved
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(h.adaptationPath())
		return err == nil && json.Unmarshal(text, &state) == nil && state.Version == adaptation.StateVersion
	}, soon, poll)

	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.7", Off: true})
	require.NoError(t, err)
	require.Zero(t, p.Count())
}

// Requests about paths, limits and rules, and the daemon's own loops, take the locks of the rules, of the paths and of
// the limits in the same order. Otherwise they would wait for each other.
func TestAdaptBesideOtherRequests(t *testing.T) {
	fake, p := &enforcetest.Kernel{}, hostpathtest.New(500e3)
	const host, area = "192.0.2.7", "192.0.2.0/24"
	fake.SetPeers(here(t, host, "192.0.2.9")...)
	c := newClerk(t, fake, "[[rule]]\nto = '198.51.100.0/24'\nprotocol = 'udp'\nadapt = '30%'\n", func(o *Options) { o.OpenPath = p.Open })
	until := time.Now().Add(200 * time.Millisecond)
	var all sync.WaitGroup
	for _, request := range []func() error{
		func() error { _, err := c.adapt(root, api.AdaptRequest{Host: host}); return err },
		func() error { _, err := c.adapt(root, api.AdaptRequest{Host: host, Off: true}); return err },
		func() error { _, err := c.adapt(root, api.AdaptRequest{Host: area}); return err },
		func() error { _, err := c.adapt(root, api.AdaptRequest{Host: area, Off: true}); return err },
		func() error { _, err := c.set(root, "to:"+host+"/udp", up(1e6)); return err },
		func() error { _, err := c.remove(root, "to:"+host+"/udp"); return err },
		func() error { _, err := c.remove(root, "to:"+area+"/udp"); return err },
		func() error { _, err := c.Adapted(t.Context(), root); return err },
		func() error { _, err := c.Nodes(t.Context(), root); return err },
		func() error { _, err := c.Rules(t.Context(), root); return err },
		func() error { _, err := c.ReloadRules(t.Context(), root); return err },
		func() error { _ = os.Remove(c.adaptationPath()); c.writeAgain(); return nil },
	} {
		all.Go(func() {
			for time.Now().Before(until) {
				var refused *api.Error
				if err := request(); err != nil && !errors.As(err, &refused) {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(soon):
		require.Fail(t, "requests wait for each other")
	}
	require.NoError(t, c.Down(t.Context(), root))
	require.NoError(t, c.wait())
	require.Zero(t, p.Count())
}
