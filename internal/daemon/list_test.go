package daemon

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

func TestNodesThatHoldInnermostFirst(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	// The shell's child is the subject of the request.
	shell := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	shell.Stderr = os.Stderr
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	t.Cleanup(func() { end(shell) })
	buf := make([]byte, 16)
	n, err := out.Read(buf)
	require.NoError(t, err)
	child := strings.TrimSpace(string(buf[:n]))
	t.Cleanup(func() {
		if pid, err := strconv.Atoi(child); err == nil {
			p, _ := os.FindProcess(pid)
			_ = p.Kill()
		}
	})

	_, err = h.nodesFor("pid:" + child)
	testutil.RequireCode(t, api.CodeNoLimit, err)
	host := h.mustSet(root, "host", up(4e6))
	user := h.mustSet(root, fmt.Sprint("user:", os.Getuid()), up(3e6))
	outer := h.mustSet(root, pidSubject(shell), up(2e6))
	inner := h.mustSet(root, "pid:"+child, up(1e6))
	h.mustSet(root, pidSubject(sleeper(t)), up(1e6))

	ids := func(subject string) (ids []uint32) {
		nodes, err := h.nodesFor(subject)
		require.NoError(t, err)
		for _, n := range nodes {
			ids = append(ids, n.ID)
		}
		return ids
	}
	require.Equal(t, []uint32{inner.ID, outer.ID, user.ID, host.ID}, ids("pid:"+child))
	require.Equal(t, []uint32{outer.ID, user.ID, host.ID}, ids(pidSubject(shell)))
	require.Equal(t, []uint32{user.ID, host.ID}, ids(fmt.Sprint("user:", os.Getuid())))
	require.Equal(t, []uint32{host.ID}, ids("host"))

	all, err := h.Nodes(t.Context(), root)
	require.NoError(t, err)
	require.Len(t, all.Nodes, 5)
	require.Equal(t, host.ID, all.Nodes[0].ID, "outermost first")
	require.Zero(t, all.Nodes[0].Parent)
	require.Equal(t, host.ID, all.Nodes[1].Parent)
	require.Equal(t, user.ID, all.Nodes[2].Parent, "the kernel names no tree around it")
	require.Positive(t, all.Nodes[0].Processes)
	require.GreaterOrEqual(t, all.Nodes[0].Processes, all.Nodes[1].Processes)
}

func TestUsage(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = 100 * time.Millisecond
	h := start(t, fake, opts)
	node := h.mustSet(root, "host", up(1e6))
	fake.SetSockets(
		enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 100, QueuedBytes: 150, WaitNS: 5},
		enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 10, QueuedBytes: 10, WaitNS: 9},
		enforce.SocketStats{Nodes: []uint32{node.ID}, QueuedBytes: 10, WaitNS: 99},
		enforce.SocketStats{Nodes: []uint32{node.ID}, UnsentBytes: 10},
		enforce.SocketStats{Nodes: []uint32{77}, UnsentBytes: 10, WaitNS: 7},
	)
	begin := time.Now()
	bytes := func() uint64 { return uint64(time.Since(begin).Seconds() * 1e6) }
	for time.Since(begin) < 10*opts.Tick {
		fake.SetStats(enforce.NodeStats{ID: node.ID, Bytes: bytes(), Held: 3})
		time.Sleep(time.Millisecond)
	}
	nodes, err := h.nodesFor("host")
	require.NoError(t, err)
	got := nodes[0]
	require.Equal(t, 4, got.Sockets)
	require.Equal(t, 2, got.Up.WaitingSockets)
	require.EqualValues(t, 110, got.Up.WaitingBytes)
	require.EqualValues(t, 9, got.Up.WaitNS)
	require.EqualValues(t, 3, got.Up.Held)
	require.InDelta(t, 1e6, got.Up.RateBytesPerSec, 0.3e6)
}

func TestUnknownOwners(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = 100 * time.Millisecond
	h := start(t, fake, opts)
	h.mustSet(root, "host", up(1e6))
	begin, sent := time.Now(), uint64(0)
	var got api.Unknown
	h.eventually("its rate", func() bool { // a busy machine stops the test between two looks of the daemon
		sent = uint64(time.Since(begin).Seconds() * 1e6)
		fake.SetUnknown(enforce.UnknownStats{
			SentSocket:     enforce.Volume{Bytes: sent, Packets: 7},
			SentKernel:     enforce.Volume{Bytes: 10, Packets: 1},
			ReceivedSocket: enforce.Volume{Bytes: 100, Packets: 2},
			ReceivedKernel: enforce.Volume{Bytes: 20, Packets: 3},
			ReceivedNobody: enforce.Volume{Bytes: 3, Packets: 4},
		})
		nodes, err := h.Nodes(t.Context(), root)
		got = nodes.Unknown
		return err == nil && math.Abs(float64(got.Up.RateBytesPerSec)-1e6) < 0.3e6
	})
	require.InDelta(t, sent, got.Up.Bytes, 0.1e6)
	require.Equal(t, got.Up.Bytes-10, got.Up.BytesOf.Socket)
	require.EqualValues(t, 8, got.Up.Packets)
	require.Equal(t, api.UnknownUsage{
		Bytes: 123, Packets: 9, BytesOf: api.UnknownBytes{Socket: 100, Kernel: 20, NoSocket: 3},
	}, got.Down)
	status, err := h.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, got.Down, status.Unknown.Down)
}

// Bytes received under a limit on both directions together do not count as sent.
func TestUsageUnderATotal(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.Tick = 100 * time.Millisecond
	h := start(t, fake, opts)
	node := h.mustSet(root, "host", api.Wish{TotalBytesPerSec: ptr(uint64(4e6))})
	begin := time.Now()
	for time.Since(begin) < 10*opts.Tick {
		received := uint64(time.Since(begin).Seconds() * 3e6)
		fake.SetStats(enforce.NodeStats{ID: node.ID, Bytes: 40, TotalBytes: received + 40, Down: enforce.InflowStats{Bytes: received}})
		time.Sleep(time.Millisecond)
	}
	nodes, err := h.nodesFor("host")
	require.NoError(t, err)
	got := nodes[0]
	require.EqualValues(t, 40, got.Up.Bytes)
	require.Zero(t, got.Up.RateBytesPerSec)
	require.InDelta(t, 3e6, got.Down.RateBytesPerSec, 0.9e6)
	require.NotNil(t, got.Total)
	require.Equal(t, got.Down.Bytes+40, got.Total.Bytes)
	require.InDelta(t, 3e6, got.Total.RateBytesPerSec, 0.9e6)
	require.False(t, got.Up.Uncounted || got.Down.Uncounted)

	h.mustSet(root, "host", api.Wish{TotalBytesPerSec: ptr(uint64(0)), UpBytesPerSec: ptr(uint64(4e6))})
	nodes, err = h.nodesFor("host")
	require.NoError(t, err)
	require.Nil(t, nodes[0].Total)
	require.True(t, nodes[0].Down.Uncounted, "no limit on that is left")
}

// A direction of a node that no limit counts is marked as unknown, rather than shown as 0.
func TestWhoIsCounted(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	is := func(subject string, sent, received bool) {
		t.Helper()
		nodes, err := h.nodesFor(subject)
		require.NoError(t, err)
		require.Equal(t, subject, nodes[0].Subject.String())
		require.Equal(t, [2]bool{sent, received}, [2]bool{!nodes[0].Up.Uncounted, !nodes[0].Down.Uncounted}, subject)
	}
	light, plain := sleeper(t), sleeper(t)
	h.mustSet(root, pidSubject(light), api.Wish{Weight: ptr(uint32(1))})
	h.mustSet(root, pidSubject(plain), api.Wish{DSCP: ptr(10)})
	is(pidSubject(light), false, false)
	is(pidSubject(plain), false, false)

	user := fmt.Sprint("user:", os.Getuid())
	h.mustSet(root, user, api.Wish{DownBytesPerSec: ptr(uint64(1e6))})
	userName := h.mustSet(root, user, up(1e6)).Subject.String()
	is(userName, true, true)
	is(pidSubject(light), true, false)
	is(pidSubject(plain), false, false)
	h.mustSet(root, user, up(0))
	is(userName, false, true)
	is(pidSubject(light), false, false)

	h.mustSet(root, "host", api.Wish{TotalBytesPerSec: ptr(uint64(9e6)), InputMeter: ptr(false)})
	is("host", true, false)
	is(pidSubject(light), true, false)
	_, err := h.remove(root, "host")
	require.NoError(t, err)

	// The sent bytes of a group's members are counted if the group's limit is on sending.
	members := func(w api.Wish) string {
		t.Helper()
		member := sleeper(t)
		_, err := h.group(root, fmt.Sprint("g", member.Process.Pid), w, memberOf(member, 0))
		require.NoError(t, err)
		h.observe.Outdate()
		return pidSubject(member)
	}
	is(members(up(1e6)), true, false)
	is(members(api.Wish{DownBytesPerSec: ptr(uint64(1e6))}), false, false)
}
