package observe

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// wholeOf replaces the stateless sockets of the kernel side by some of this process.
func (h *harness) wholeOf(nodes []uint32, cookies ...uint64) {
	h.t.Helper()
	_, start, ok := h.resolver.ProcessName(os.Getpid())
	require.True(h.t, ok)
	whole := enforce.StatelessStats{Users: map[uint32]enforce.StatelessUser{}}
	for _, cookie := range cookies {
		whole.Sockets = append(whole.Sockets, enforce.StatelessSocket{
			Cookie: cookie, PID: uint32(os.Getpid()), StartBoottimeNS: start, UID: uint32(os.Getuid()), Nodes: nodes,
		})
	}
	h.mem.mu.Lock()
	defer h.mem.mu.Unlock()
	h.mem.whole = whole
}

// A list counts the stateless sockets of each node on their path, unless their process has ended. An answer to a change
// warns of them, with what helps.
func TestStatelessSocketsOfNodes(t *testing.T) {
	h := newHarness(t)
	h.publish(onUser(7, 1000, 1e6), onUser(8, 1001, 1e6), onUser(9, 1002, 1e6))
	require.Empty(t, h.NoteStateless(&h.nodes(root)[0]))

	h.wholeOf([]uint32{7, 9}, 1, 2)
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	h.mem.mu.Lock()
	h.mem.whole.Sockets = append(h.mem.whole.Sockets,
		enforce.StatelessSocket{Cookie: 3, PID: uint32(ended.Process.Pid), StartBoottimeNS: 1, Nodes: []uint32{7, 9}},
		enforce.StatelessSocket{Cookie: 4, Nodes: []uint32{9}}) // its process is not known
	h.mem.mu.Unlock()
	h.Outdate()
	count := make(map[uint32]int)
	for _, n := range h.nodes(root) {
		count[n.ID] = n.StatelessSockets
	}
	require.Equal(t, map[uint32]int{7: 2, 8: 0, 9: 3}, count)
	require.Contains(t, told(t, h.nodes(root), nil), `"stateless_sockets":2`)

	n := api.Node{ID: 7, Limits: []api.Limit{{Direction: api.Up, BytesPerSec: 1e6}}}
	warned := h.NoteStateless(&n)
	require.Len(t, warned, 1)
	require.Equal(t, 2, n.StatelessSockets)
	require.Contains(t, warned[0], "2 sockets have no room for state: their limits hold for each as a whole, and TCP sends 0.2 to 0.6 of its limit")
	require.Contains(t, warned[0], "sudo sysctl -w net.core.optmem_max=")
	require.Empty(t, h.NoteStateless(&api.Node{ID: 8, Limits: n.Limits}), "none of its sockets is such a one")
	require.Empty(t, h.NoteStateless(&api.Node{ID: 7}), "no limit is left on it")
}

// A question about a process names the stateless ones among its open sockets, with their limits. They are not counted
// as free, and closed ones are not named.
func TestWhyNamesStatelessSockets(t *testing.T) {
	h := newHarness(t)
	h.publish(onUser(7, 1000, 1e6))
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	require.NoError(t, err)
	var cookie uint64
	fd := -1
	require.NoError(t, raw.Control(func(f uintptr) {
		fd = int(f)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	}))
	require.NoError(t, err)
	ask := func(fd int) api.Why {
		t.Helper()
		why, err := h.Why(t.Context(), root, os.Getpid(), fd, 50*time.Millisecond)
		require.NoError(t, err)
		return why
	}
	before := ask(-1)
	require.Empty(t, before.Sockets)
	require.Empty(t, before.Notes)

	const closed = 1 << 60
	h.wholeOf([]uint32{7}, cookie, closed)
	why := ask(-1)
	require.Len(t, why.Sockets, 1)
	require.Equal(t, before.Free-1, why.Free)
	s := why.Sockets[0]
	require.Equal(t, []int{fd}, s.FDs)
	require.Equal(t, "tcp", s.Protocol)
	require.Equal(t, l.Addr().String(), s.Local)
	require.Equal(t, []api.Verdict{api.LimitedWhole, api.LimitedWhole}, []api.Verdict{s.Up, s.Down})
	require.Len(t, s.Limits, 1)
	require.True(t, s.Limits[0].Holds)
	require.EqualValues(t, 1e6, s.Limits[0].BytesPerSec)
	require.Len(t, why.Notes, 1)
	require.Contains(t, why.Notes[0], "1 socket has no room for state")
	require.Contains(t, why.Notes[0], "sudo sysctl -w net.core.optmem_max=")
	require.Len(t, ask(fd).Sockets, 1)
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(other)
	require.Empty(t, ask(other).Sockets)
}

// A user of more such sockets than the kernel side notes reads that the forgotten ones are stopped.
func TestWhyTellsOfForgottenSockets(t *testing.T) {
	h := newHarness(t)
	h.wholeOf(nil)
	h.mem.whole.Users[uint32(os.Getuid())] = enforce.StatelessUser{Noted: 1, Forgets: true}
	why, err := h.Why(t.Context(), root, os.Getpid(), -1, 50*time.Millisecond)
	require.NoError(t, err)
	require.True(t, strings.Contains(strings.Join(why.Notes, ""), "those of the user that it has forgotten neither send nor receive"), "%q", why.Notes)
}
