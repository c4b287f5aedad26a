package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// The answer about a socket has each owner's limit and its setter, and marks the lower one as holding. Other users are
// denied.
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

	// A socket has a receive rate by an option: its own queue binds.
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

	_, err = h.Why(context.Background(), auth.Actor{UID: node.UID + 1}, pid, -1, 100*time.Millisecond)
	testutil.RequireCode(t, api.CodeDenied, err)
	_, err = h.Why(context.Background(), root, pid, 0, 100*time.Millisecond)
	testutil.RequireCode(t, api.CodeBadRequest, err)
	_, err = h.Why(context.Background(), root, pid, 999, 100*time.Millisecond)
	testutil.RequireCode(t, api.CodeNotFound, err)
	_, err = h.Why(context.Background(), root, 1, -1, 100*time.Millisecond)
	testutil.RequireCode(t, api.CodeBadRequest, err)
}

// A program's connections may belong to a program that it has started. Each is shown with the process that has it open,
// and those of other users only to root.
func TestWhyLooksAtDescendants(t *testing.T) {
	testutil.RequireRoot(t) // the child is another user's
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	file, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	var stat unix.Stat_t
	require.NoError(t, unix.Fstat(int(file.Fd()), &stat))
	// The process has closed the descriptor that its child has open, and belongs to another user.
	parent := exec.Command("python3", "-c", `
import os, time
child = os.fork()
if not child:
    time.sleep(60)
os.close(3)
os.setuid(4242)
print(child, flush=True)
time.sleep(60)
`)
	parent.Stderr, parent.ExtraFiles = os.Stderr, []*os.File{file}
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { end(parent) })
	var child int
	_, err = fmt.Fscan(out, &child)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })

	pid := parent.Process.Pid
	node := h.mustSet(root, pidSubject(parent), up(2e6))
	open := enforce.SocketStats{PID: uint32(child), Nodes: []uint32{node.ID}, Family: unix.AF_INET, LocalPort: 80}
	draining := open
	draining.LocalPort = 81
	fake.SetLooks(
		enforce.SocketLook{SocketStats: draining, Protocol: unix.IPPROTO_TCP},
		enforce.SocketLook{SocketStats: open, Protocol: unix.IPPROTO_TCP, Inode: stat.Ino},
	)
	w, err := h.Why(t.Context(), root, pid, -1, 100*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, []api.WhyProcess{{PID: pid, Name: "python3"}, {PID: child, Name: "python3"}}, w.Processes)
	require.Len(t, w.Sockets, 2)
	require.Equal(t, []int{3}, w.Sockets[0].FDs)
	for _, s := range w.Sockets {
		require.Equal(t, child, s.Process)
		require.Equal(t, pidSubject(parent), s.Limits[0].Subject.String())
	}

	w, err = h.Why(t.Context(), auth.Actor{UID: 4242}, pid, -1, 100*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, w.Processes, 1)
	require.Equal(t, 1, w.HiddenProcesses)
	require.Empty(t, w.Sockets, "root's process has them")
}

// The use of a limit on both directions together is the charge to that limit, not the bytes sent.
func TestWhyOfATotal(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	cmd := sleeper(t)
	node := h.mustSet(root, pidSubject(cmd), api.Wish{UpBytesPerSec: ptr(uint64(9e6)), TotalBytesPerSec: ptr(uint64(4e6))})
	fake.SetLooks(enforce.SocketLook{
		SocketStats: enforce.SocketStats{PID: uint32(cmd.Process.Pid), Nodes: []uint32{node.ID}, Family: unix.AF_INET}, Protocol: unix.IPPROTO_TCP,
	})
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			select {
			case <-stop:
				return
			default:
			}
			fake.SetStats(enforce.NodeStats{ID: node.ID, Processes: 1, Bytes: 40, TotalBytes: uint64(time.Since(begin).Seconds() * 3e6)})
		}
	}()
	time.Sleep(20 * time.Millisecond) // until the first figures exist
	w, err := h.Why(t.Context(), root, cmd.Process.Pid, -1, 300*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, w.Sockets, 1)
	used := map[api.Direction]uint64{}
	for _, l := range w.Sockets[0].Limits {
		used[l.Direction] = l.UsedBytesPerSec
	}
	require.Zero(t, used[api.Up])
	require.InDelta(t, 3e6, used[api.Total], 0.9e6)
}

func limitName(l api.WhyLimit) string { return l.Subject.String() + " " + string(l.Direction) }
