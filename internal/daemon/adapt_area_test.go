package daemon

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/netnamespace"
)

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

// Each host of a prefix that receives traffic is followed, and all end with the prefix.
func TestAdaptArea(t *testing.T) {
	h, p, fake := adaptHarness(t)
	fake.SetPeers(append(here(t, "192.0.2.7", "192.0.2.9", "127.0.0.1", "224.0.0.1"),
		enforce.Peer{Address: netip.MustParseAddr("192.0.2.8"), Netns: 1})...) // a peer in another namespace
	got, err := h.adapt(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", SharePPM: 300_000, DryRun: true})
	require.NoError(t, err)
	require.Len(t, got.Areas, 1)
	require.Zero(t, h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"))
	got, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", SharePPM: 300_000})
	require.NoError(t, err)
	require.Equal(t, "to:192.0.2.0/24,!192.0.2.128/25/udp", got.Areas[0].Subject.String())
	require.EqualValues(t, areaLimit, h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"), "which is never reached")
	require.Eventually(t, func() bool { return len(h.followed()) == 2 }, soon, poll)
	require.ElementsMatch(t, []string{"192.0.2.7", "192.0.2.9"}, h.followed())
	require.EqualValues(t, 500e3, h.upTo("to:192.0.2.9/udp"))
	all, err := h.Adapted(context.Background(), root)
	require.NoError(t, err)
	require.EqualValues(t, 300_000, all.Adapted[0].SharePPM)
	require.Equal(t, "192.0.2.0/24,!192.0.2.128/25", all.Adapted[0].Area)

	_, err = h.adapt(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", Off: true})
	require.NoError(t, err)
	require.Empty(t, h.followed())
	require.Zero(t, h.upTo("to:192.0.2.9/udp")+h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"))
	require.Zero(t, p.Count())
	require.NoFileExists(t, h.adaptPath())
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
	requireCode(t, api.CodeConflict, err)
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
	c.write("")
	_, err = again.ReloadRules(context.Background(), root)
	require.NoError(t, err)
	again.eventually("it ends with the rule", func() bool { return len(again.followed()) == 0 && p.Count() == 0 })
	require.Zero(t, again.upTo("to:192.0.2.9/udp")+again.upTo("to:192.0.2.0/24/udp"))
	require.NoFileExists(t, again.adaptPath())
}

// While a command ends a rule's hosts one by one, the rule begins with its prefix again, and with a host that has ended
// already. The command's parameters hold for all hosts all the same.
func TestAdaptAreaBegunAgain(t *testing.T) {
	fake, p := &enforcetest.Kernel{}, hostpathtest.New(500e3)
	fake.SetPeers(here(t, "192.0.2.7", "192.0.2.9")...)
	c := newClerk(t, fake, "[[rule]]\nto = '192.0.2.0/24'\nprotocol = 'udp'\nadapt = '30%'\n", func(o *Options) { o.OpenPath = p.Open })
	following := func() (n int) {
		c.adapts.mu.Lock()
		defer c.adapts.mu.Unlock()
		for _, host := range c.adapts.list {
			if host.ended != nil {
				n++
			}
		}
		return n
	}
	c.eventually("both are followed", func() bool { return following() == 2 })
	halted := 0
	c.adapts.mu.Lock()
	for _, host := range c.adapts.list {
		end := host.end
		host.end = func() {
			if halted++; halted == 1 {
				end()
				return
			}
			go func() { // the second ends once the first is followed again
				for until := time.Now().Add(soon); time.Now().Before(until) && following() < 2; time.Sleep(poll) {
					c.wakeAdapts()
				}
				end()
			}()
		}
	}
	c.adapts.mu.Unlock()
	_, err := c.adapt(root, api.AdaptRequest{Host: "192.0.2.0/24", SharePPM: 700_000})
	require.NoError(t, err)
	c.eventually("as the command says", func() bool {
		all, err := c.Adapted(context.Background(), root)
		return err == nil && len(all.Adapted) == 2 && all.Adapted[0].SharePPM == 700_000 && all.Adapted[1].SharePPM == 700_000 && all.Areas[0].Rule == nil
	})
}

// A host that answers no probe is not limited, and the daemon tries it again later.
func TestAdaptAreaOfTheSilent(t *testing.T) {
	h, p, fake := adaptHarness(t)
	p.Silence(true)
	fake.SetPeers(here(t, "192.0.2.7", "2001:db8::7")...)
	_, err := h.adapt(root, api.AdaptRequest{Host: "any"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		all, err := h.Adapted(context.Background(), root)
		return err == nil && all.Areas[0].SilentHosts == 2
	}, soon, poll)
	require.Empty(t, h.followed())
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
	require.NoFileExists(t, h.adaptPath())
}
