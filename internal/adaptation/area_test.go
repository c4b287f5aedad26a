package adaptation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath/hostpathtest"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/testutil"
)

// ruleSet returns the rules of a file.
func ruleSet(t *testing.T, text string) *rules.Set {
	t.Helper()
	list, err := rules.Parse("netnice.toml", []byte(text), rules.Context{})
	require.NoError(t, err)
	return rules.Compile(list)
}

// Each host of a prefix that receives traffic is followed, and all end with the prefix.
func TestAdaptArea(t *testing.T) {
	h, p := newHarness(t)
	h.mem.setPeers(t, 0, "192.0.2.7", "192.0.2.9", "127.0.0.1", "224.0.0.1")
	h.mem.setPeers(t, 1, "192.0.2.8") // a peer in another namespace
	got, err := h.set(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", SharePPM: 300_000, DryRun: true})
	require.NoError(t, err)
	require.Len(t, got.Areas, 1)
	require.Zero(t, h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"))
	got, err = h.set(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", SharePPM: 300_000})
	require.NoError(t, err)
	require.Equal(t, "to:192.0.2.0/24,!192.0.2.128/25/udp", got.Areas[0].Subject.String())
	require.EqualValues(t, AreaLimit, h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"), "which is never reached")
	require.Eventually(t, func() bool { return len(h.addresses()) == 2 }, soon, poll)
	require.ElementsMatch(t, []string{"192.0.2.7", "192.0.2.9"}, h.addresses())
	require.EqualValues(t, 500e3, h.upTo("to:192.0.2.9/udp"))
	all := h.List(root)
	require.EqualValues(t, 300_000, all.Adapted[0].SharePPM)
	require.Equal(t, "192.0.2.0/24,!192.0.2.128/25", all.Adapted[0].Area)

	_, err = h.set(root, api.AdaptRequest{Host: "192.0.2.0/24,!192.0.2.128/25", Off: true})
	require.NoError(t, err)
	require.Empty(t, h.addresses())
	require.Zero(t, h.upTo("to:192.0.2.9/udp")+h.upTo("to:192.0.2.0/24,!192.0.2.128/25/udp"))
	require.Zero(t, p.Count())
	require.Empty(t, h.mem.Text())
}

// While a command ends a rule's hosts one by one, the rule begins with its prefix again, and with a host that has ended
// already. The command's parameters hold for all hosts all the same.
func TestAdaptAreaBegunAgain(t *testing.T) {
	h := startTable(t, newMemory(), hostpathtest.New(500e3), true)
	h.mem.setPeers(t, 0, "192.0.2.7", "192.0.2.9")
	h.LearnRules(ruleSet(t, "[[rule]]\nto = '192.0.2.0/24'\nprotocol = 'udp'\nadapt = '30%'\n"), time.Now())
	following := func() (n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, host := range h.list {
			if host.ended != nil {
				n++
			}
		}
		return n
	}
	h.eventually("both are followed", func() bool { return following() == 2 })
	halted := 0
	h.mu.Lock()
	for _, host := range h.list {
		end := host.end
		host.end = func() {
			if halted++; halted == 1 {
				end()
				return
			}
			go func() { // the second ends once the first is followed again
				for until := time.Now().Add(soon); time.Now().Before(until) && following() < 2; time.Sleep(poll) {
					h.wakeUp()
				}
				end()
			}()
		}
	}
	h.mu.Unlock()
	_, err := h.set(root, api.AdaptRequest{Host: "192.0.2.0/24", SharePPM: 700_000})
	require.NoError(t, err)
	h.eventually("as the command says", func() bool {
		all := h.List(root)
		return len(all.Adapted) == 2 && all.Adapted[0].SharePPM == 700_000 && all.Adapted[1].SharePPM == 700_000 && all.Areas[0].Rule == nil
	})
}

// A host that answers no probe is not limited, and the daemon tries it again later.
func TestAdaptAreaOfTheSilent(t *testing.T) {
	h, p := newHarness(t)
	p.Silence(true)
	h.mem.setPeers(t, 0, "192.0.2.7", "2001:db8::7")
	_, err := h.set(root, api.AdaptRequest{Host: "any"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return h.List(root).Areas[0].SilentHosts == 2
	}, soon, poll)
	require.Empty(t, h.addresses())
}

// Each host of an area has the bound; the limit that finds the hosts has none.
func TestAdaptBacklogOfAnArea(t *testing.T) {
	h, _ := newHarness(t)
	h.mem.setPeers(t, 0, "192.0.2.7")
	got, err := h.set(root, api.AdaptRequest{Host: "192.0.2.0/24", BacklogNS: 3e9})
	require.NoError(t, err)
	require.EqualValues(t, 3e9, got.Areas[0].BacklogNS)
	require.Eventually(t, func() bool { return h.mem.limit("to:192.0.2.7/udp").backlog == 3e9 }, soon, poll)
	require.Zero(t, h.mem.limit("to:192.0.2.0/24/udp").backlog)
}

// The prefixes of rules are followed as long as the rules ask for it. Before the rules are read, nothing changes.
func TestRules(t *testing.T) {
	mem, p := newMemory(), hostpathtest.New(500e3)
	mem.setPeers(t, 0, "192.0.2.7", "192.0.2.9")
	h := startTable(t, mem, p, true)
	const text = "[[rule]]\nname = 'paths'\nto = '192.0.2.0/24'\nprotocol = 'udp'\nadapt = '30%'\nup = '1MB/s'\n"
	h.LearnRules(ruleSet(t, text), time.Now())
	h.eventually("both are followed", func() bool { return len(h.addresses()) == 2 })
	all := h.List(root)
	require.Equal(t, "paths", all.Areas[0].Rule.Name)
	require.EqualValues(t, 1e6, all.Adapted[0].MostBytesPerSec)
	keys := h.RuledHosts()
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
	_, err := h.set(root, api.AdaptRequest{Host: "192.0.2.0/24", Off: true})
	testutil.RequireCode(t, api.CodeConflict, err)
	require.ErrorContains(t, err, "netnice.toml:1")
	h.stop()

	h = startTable(t, mem, p, true)
	h.LearnRules(nil, time.Now())
	require.Len(t, h.addresses(), 2, "the rules are not known yet")
	h.LearnRules(ruleSet(t, ""), time.Now())
	h.eventually("they end with the rule", func() bool { return len(h.addresses()) == 0 && p.Count() == 0 })
	h.eventually("the limit on all, too", func() bool { return h.upTo("to:192.0.2.0/24/udp") == 0 && mem.Text() == "" })
}

// Where somebody has lifted the limit that finds the hosts, they end, too.
func TestAreaEndsWithItsLimit(t *testing.T) {
	h, p := newHarness(t)
	h.mem.setPeers(t, 0, "192.0.2.7")
	got, err := h.set(root, api.AdaptRequest{Host: "any"})
	require.NoError(t, err)
	h.eventually("it is followed", func() bool { return len(h.addresses()) == 1 })
	require.NoError(t, h.mem.LiftLimit(t.Context(), got.Areas[0].Subject))
	h.eventually("it is not followed", func() bool { return len(h.addresses()) == 0 && p.Count() == 0 && h.mem.Text() == "" })
	require.Zero(t, h.upTo("to:192.0.2.7/udp"))
}
