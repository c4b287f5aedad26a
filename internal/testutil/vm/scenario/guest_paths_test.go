package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
)

const (
	pathLimit = 125e3
	volume    = 300_000 // bytes of a transfer
	// headersLeast and headersMost bound the ratio of IP bytes to payload, for full segments and the sender's
	// acknowledgements. A packet that counts twice would double the ratio.
	headersLeast, headersMost = 1.02, 1.09
	// nearly is the tolerance of a rate on an emulated machine.
	nearly = 0.1
)

// TestGuestPaths runs in the guest; on the host it does nothing.
func TestGuestPaths(t *testing.T) {
	if os.Getenv("NETNICE_VM") != "1" {
		return
	}
	tracking := unload(t, "nf_", "nft_", "libcrc32c")
	p := newPaths(t)
	before := p.state(t)
	daemon := exec.Command("netnice", "daemon")
	daemon.Stderr = os.Stderr
	require.NoError(t, p.machine.Start(daemon))
	defer func() { _ = daemon.Process.Kill(); _ = daemon.Wait() }()
	answers(t)

	netnice(t, "set", "--host", "--down", "20MB/s") // counts, and is never reached
	idle(t, daemon.Process.Pid)
	tracking.load(t) // limits are in force, so netnice notices NAT only from then on
	p.rules(t)
	rules := tool(t, p.machine, "", "nft", "list", "ruleset")
	idle(t, daemon.Process.Pid)
	for _, c := range []struct{ name, address string }{
		{"tun", "10.90.1.2"},
		{"VLAN", "10.90.3.2"},
		{"WireGuard", "10.90.2.2"},
	} {
		t.Run(c.name, func(t *testing.T) { p.download(t, p.machine, c.address) })
	}
	t.Run("WireGuard, elsewhere", func(t *testing.T) {
		transferred(t, func(t *testing.T) transfer {
			return transfer{
				source: cast(t, p.machine, part{Do: "send", To: "10.90.2.2:80", Bytes: volume}),
				sink:   cast(t, p.far, part{Do: "receive", At: ":80"}),
			}
		})
	})
	t.Run("container behind masquerading", func(t *testing.T) { p.download(t, p.container, "10.98.0.2") })
	t.Run("published port", p.published)
	t.Run("port redirected", func(t *testing.T) {
		transferred(t, func(t *testing.T) transfer {
			return transfer{
				source: cast(t, p.far, part{Do: "send", To: "10.98.0.1:8082", Bytes: volume}),
				sink:   cast(t, p.machine, part{Do: "receive", At: ":8083"}),
			}
		})
	})
	t.Run("proxy, limited", func(t *testing.T) { p.proxied(t, true) })
	t.Run("server behind a proxy, limited", func(t *testing.T) { p.proxied(t, false) })
	t.Run("UDP in by WireGuard", p.datagramsIn)
	t.Run("UDP out by WireGuard", p.datagramsOut)

	for name, n := range status(t).Counters {
		require.False(t, n > 0 && (strings.HasPrefix(name, "shape") || strings.HasPrefix(name, "send")), "fault %s: %d", name, n)
	}
	require.Equal(t, rules, tool(t, p.machine, "", "nft", "list", "ruleset"))
	netnice(t, "down")
	require.Eventually(t, func() bool { return p.state(t) == before }, 10*time.Second, 200*time.Millisecond,
		"before:\n%s\nafter netnice down:\n%s", before, p.state(t))
}

// idle waits until the daemon has loaded its programs, which keeps the emulated processor busy.
func idle(t *testing.T, pid int) {
	t.Helper()
	used := func() (ticks int) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
		for _, at := range []int{12, 13} { // user and system time of the process
			n, err := strconv.Atoi(fields[at])
			require.NoError(t, err)
			ticks += n
		}
		return ticks
	}
	require.Eventually(t, func() bool {
		before := used()
		time.Sleep(500 * time.Millisecond)
		return used()-before < 10 // of 50
	}, time.Minute, time.Millisecond, "the daemon is not idle")
}

func status(t *testing.T) (s api.Status) {
	t.Helper()
	out, err := exec.Command("netnice", "status", "--json").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &s))
	return s
}

// limit sets a limit on a process.
func (a *actor) limit(flag string, rate float64) {
	a.t.Helper()
	netnice(a.t, "set", "--pid", strconv.Itoa(a.cmd.Process.Pid), flag, fmt.Sprintf("%.0fkB/s", rate/1e3))
}

// counted returns netnice's counters for a subject.
func counted(t *testing.T, subject string) api.Node {
	t.Helper()
	out, err := exec.Command("netnice", "ls", "--json").Output()
	require.NoError(t, err)
	var list api.NodeList
	require.NoError(t, json.Unmarshal(out, &list))
	i := slices.IndexFunc(list.Nodes, func(n api.Node) bool { return n.Subject.String() == subject })
	require.GreaterOrEqual(t, i, 0, "%s is not in %s", subject, out)
	return list.Nodes[i]
}

func (a *actor) counted() api.Node {
	a.t.Helper()
	return counted(a.t, "pid:"+strconv.Itoa(a.cmd.Process.Pid))
}

// transfer is a transfer over TCP; its sink is limited unless limited names another process.
type transfer struct {
	source, sink *actor
	between      *actor // a proxy
	limited      *actor
	idle         *actor // a listener that must receive nothing
}

// transferred checks that data arrive at the limit, and intact. It also checks that each packet is counted once, for
// its receiver.
func transferred(t *testing.T, set func(t *testing.T) transfer) {
	t.Helper()
	rated(t, pathLimit, func(t *testing.T) float64 { return transferOnce(t, set(t)) })
}

// transferOnce returns the rate, in IP bytes per second.
func transferOnce(t *testing.T, x transfer) float64 {
	t.Helper()
	if x.limited == nil {
		x.limited = x.sink
	}
	receivers := slices.DeleteFunc([]*actor{x.sink, x.between}, func(a *actor) bool { return a == nil })
	for _, a := range append(receivers, x.idle, x.source) {
		switch a {
		case nil:
		case x.limited:
			a.limit("--down", pathLimit)
		default:
			a.limit("--down", 40*pathLimit) // counted, not held
		}
	}
	all := counted(t, "host").Down.Bytes
	for _, a := range []*actor{x.idle, x.between, x.sink, x.source} {
		if a != nil {
			a.begin()
		}
	}
	got := x.sink.end()
	require.Equal(t, volume, got.Bytes)
	require.Equal(t, sum(volume), got.Sum)
	once := 0.0
	for _, a := range receivers {
		once = float64(a.counted().Down.Bytes) / volume
		require.True(t, once > headersLeast && once < headersMost, "%d bytes were received, counted %.3f of that", volume, once)
	}
	// The host counts the received acknowledgements, too.
	host := float64(counted(t, "host").Down.Bytes-all) / volume / float64(len(receivers))
	require.True(t, host > headersLeast && host < headersMost+0.05, "%d bytes were received, counted %.3f of that for the host", volume, host)
	require.Less(t, float64(x.source.counted().Down.Bytes), 0.1*volume, "acknowledgements")
	if x.idle != nil {
		require.Zero(t, x.idle.counted().Down.Bytes)
	}
	t.Logf("%.3f MB/s of data; IP bytes counted are %.3f of them, for the host %.3f", got.rate()/1e6, once, host)
	return got.rate() * once
}

// download is a transfer by a program in a namespace from an address of the far side.
func (p *paths) download(t *testing.T, n *testbed.NetNS, from string) {
	t.Helper()
	transferred(t, func(t *testing.T) transfer {
		return transfer{
			source: cast(t, p.far, part{Do: "send", At: ":80", Bytes: volume}),
			sink:   cast(t, n, part{Do: "receive", To: from + ":80"}),
		}
	})
}

// published is a transfer from outside to a port of the machine that NAT maps to the container. A proxy program
// listens on the port, too, as with Docker.
func (p *paths) published(t *testing.T) {
	transferred(t, func(t *testing.T) transfer {
		return transfer{
			source: cast(t, p.far, part{Do: "send", To: "10.98.0.1:8080", Bytes: volume}),
			sink:   cast(t, p.container, part{Do: "receive", At: ":80"}),
			idle:   cast(t, p.machine, part{Do: "proxy", At: ":8080", To: "10.90.4.2:80"}),
		}
	})
}

// proxied is published by a program that copies the data.
func (p *paths) proxied(t *testing.T, proxy bool) {
	transferred(t, func(t *testing.T) transfer {
		x := transfer{
			source:  cast(t, p.far, part{Do: "send", To: "10.98.0.1:8081", Bytes: volume}),
			sink:    cast(t, p.container, part{Do: "receive", At: ":80"}),
			between: cast(t, p.machine, part{Do: "proxy", At: ":8081", To: "10.90.4.2:80"}),
		}
		if proxy {
			x.limited = x.between
		}
		return x
	})
}

// ipBytes returns the IP bytes of datagrams with this many bytes of payload, with headers of IPv4 and UDP.
func ipBytes(payload int) float64 { return float64(payload) * (datagram + 28) / datagram }

// datagramsIn sends datagrams at half as much again as the limit.
func (p *paths) datagramsIn(t *testing.T) {
	rated(t, pathLimit, func(t *testing.T) float64 {
		to := cast(t, p.machine, part{Do: "take", At: "10.90.2.1:53"})
		from := cast(t, p.far, part{Do: "throw", To: "10.90.2.1:53", PerSec: 1.5 * pathLimit, Seconds: 3})
		to.limit("--down", pathLimit)
		to.begin()
		from.begin()
		got, counted := to.end(), to.counted().Down.Bytes
		t.Logf("%d bytes of payload, counted %d", got.Bytes, counted)
		require.Zero(t, got.Broken)
		require.InEpsilon(t, ipBytes(got.Bytes), counted, 0.02)
		return got.rate() * ipBytes(1)
	})
}

// datagramsOut sends more than the limit, too: the packets of the tunnel do not count once more.
func (p *paths) datagramsOut(t *testing.T) {
	rated(t, pathLimit, func(t *testing.T) float64 {
		to := cast(t, p.far, part{Do: "take", At: "10.90.2.2:53"})
		from := cast(t, p.machine, part{Do: "throw", To: "10.90.2.2:53", PerSec: 3 * pathLimit, Seconds: 3.5})
		from.limit("--up", pathLimit)
		to.begin()
		from.begin()
		sent, got, counted := from.end(), to.end(), from.counted().Up.Bytes
		t.Logf("%d bytes of payload sent, %d received, counted %d", sent.Bytes, got.Bytes, counted)
		require.Zero(t, got.Broken)
		// Datagrams from before the queue exists are lost or counted early.
		require.InEpsilon(t, ipBytes(got.Bytes), counted, 0.1)
		return got.rate() * ipBytes(1)
	})
}
