package auth

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/enforce"
)

func TestTable(t *testing.T) {
	const bob, eve = 1000, 1001
	proc := func(uid uint32) Target {
		return Target{Subject: api.Subject{Kind: api.KindPID, ID: "42"}, Kind: enforce.KindTree, UID: uid}
	}
	user := func(uid uint32) Target {
		return Target{Subject: api.Subject{Kind: api.KindUser, ID: "x"}, Kind: enforce.KindUser, UID: uid}
	}
	cgroup := func(uid uint32) Target {
		return Target{Subject: api.Subject{Kind: api.KindCgroup, ID: "/x"}, Kind: enforce.KindCgroup, UID: uid}
	}
	host := Target{Subject: api.Subject{Kind: api.KindHost}, Kind: enforce.KindHost}
	for _, c := range []struct {
		name   string
		by     uint32
		act    Action
		target Target
		may    bool
	}{
		{"root, any process", 0, Set, proc(bob), true},
		{"root, host", 0, Set, host, true},
		{"root, down", 0, Down, Target{}, true},
		{"root, the whole machine", 0, Configure, Target{}, true},
		{"own process", bob, Set, proc(bob), true},
		{"own process, lift", bob, Remove, proc(bob), true},
		{"own process, scope", bob, Scope, proc(bob), true},
		{"own user", bob, Set, user(bob), true},
		{"own scope", bob, Set, cgroup(bob), true},
		{"other's process", eve, Set, proc(bob), false},
		{"other's process, lift", eve, Remove, proc(bob), false},
		{"other's process, scope", eve, Scope, proc(bob), false},
		{"root's process", bob, Set, proc(0), false},
		{"other user", eve, Set, user(bob), false},
		{"cgroup", bob, Set, cgroup(0), false},
		{"scope of a cgroup", bob, Scope, cgroup(bob), false},
		{"host", bob, Set, host, false},
		{"host owned by nobody but root", bob, Set, Target{Kind: enforce.KindHost, UID: bob}, false},
		{"root, any destination", 0, SeePeers, Target{UID: bob}, true},
		{"own destination", bob, SeePeers, Target{UID: bob}, true},
		{"other's destination", eve, SeePeers, Target{UID: bob}, false},
		{"nobody's destination", bob, SeePeers, Target{}, false},
		{"down", bob, Down, Target{}, false},
		{"the whole machine", bob, Configure, Target{}, false},
		{"unknown action", bob, Action(99), proc(bob), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Check(Actor{UID: c.by}, c.act, c.target)
			if c.may {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrDenied)
			var e *api.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, api.CodeDenied, e.Code)
			require.Contains(t, e.Hint, "sudo netnice ")
		})
	}
}

func TestCommand(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	weight := uint32(300)
	for want, c := range map[string]struct {
		act Action
		s   api.Subject
		w   api.Wish
	}{
		"sudo netnice set --host --up 1MB/s":                      {Set, api.Subject{Kind: api.KindHost}, api.Wish{UpBytesPerSec: n(1e6)}},
		"sudo netnice set --user bob --total 1234B/s":             {Set, api.Subject{Kind: api.KindUser, ID: "bob"}, api.Wish{TotalBytesPerSec: n(1234)}},
		"sudo netnice set --pid 5 --up 0 --weight 300":            {Set, api.Subject{Kind: api.KindPID, ID: "5"}, api.Wish{UpBytesPerSec: n(0), Weight: &weight}},
		"sudo netnice unset --to 'any,!10.0.0.0/8'":               {Remove, api.Subject{Kind: api.KindTo, ID: "any,!10.0.0.0/8"}, api.Wish{}},
		"sudo netnice unset --unit web.service":                   {Remove, api.Subject{Kind: api.KindUnit, ID: "web.service"}, api.Wish{UpBytesPerSec: n(1)}},
		"sudo netnice set --cgroup /a --up 2GB/s --total 128kB/s": {Set, api.Subject{Kind: api.KindCgroup, ID: "/a"}, api.Wish{UpBytesPerSec: n(2e9), TotalBytesPerSec: n(128e3)}},
	} {
		require.Equal(t, want, Command(c.act, c.s, c.w))
	}
}

func TestListenerKnowsItsCallers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l := NewListener(raw, Options{CountsAs: func(uint32) uint32 { return 1000 }}) // any user who runs the test
	defer l.Close()
	client, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer client.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	want := Actor{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: os.Getpid()}
	require.Equal(t, want, c.(*Conn).Actor)
	got, ok := FromContext(ConnContext(t.Context(), c))
	require.True(t, ok)
	require.Equal(t, want, got)
	_, ok = FromContext(ConnContext(t.Context(), client))
	require.False(t, ok, "whoever is not known is nobody")
	require.Equal(t, 1, l.conns.open)
	require.NoError(t, c.Close())
	c.Close()
	require.Zero(t, l.conns.open, "closing twice counts once")
	require.Empty(t, l.conns.byUser)
}

// A member of the administrators' group is bounded as little as root.
func TestListenerDoesNotBoundAdministrators(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	require.NoError(t, raw.SetDeadline(time.Now().Add(5*time.Second)))
	group := uint32(os.Getgid())
	l := NewListener(raw, Options{Group: func() *uint32 { return &group }, CountsAs: func(uint32) uint32 { return 1000 }})
	defer l.Close()
	l.conns.perUser, l.conns.total = 0, 0
	client, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer client.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// Members of a group are administrators, both by their primary group and by their supplementary ones.
func TestListenerKnowsTheGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	group := uint32(os.Getgid())
	l := NewListener(raw, Options{Group: func() *uint32 { return &group }})
	defer l.Close()
	calls := func() Actor {
		client, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer client.Close()
		c, err := l.Accept()
		require.NoError(t, err)
		defer c.Close()
		return c.(*Conn).Actor
	}
	a := calls()
	require.True(t, a.Admin, "by the primary group")
	require.True(t, Actor{UID: 1000, Admin: true}.Root())
	require.Equal(t, enforce.OwnerAdmin, Actor{UID: 1000, Admin: true}.Owner())
	group = 54321
	require.False(t, calls().Admin)
	if os.Getuid() != 0 {
		t.Skip("only root may join groups")
	}
	runtime.LockOSThread() // never unlocked: this thread alone is in them
	list := make([]uint32, 300)
	for i := range list {
		list[i] = 50000 + uint32(i)
	}
	list[299] = group
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])), 0)
	require.Zero(t, errno)
	require.True(t, calls().Admin, "one of 300")
	group = 54322
	require.False(t, calls().Admin)
}

// A connection beyond the quota gets an answer, and is not just closed.
func TestListenerAnswersOneTooMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	raw, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l := NewListener(raw, Options{CountsAs: func(uint32) uint32 { return 1000 }})
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	for range MaxConnsPerUser {
		c, err := net.Dial("unix", path)
		require.NoError(t, err)
		defer c.Close()
	}
	require.Eventually(t, func() bool {
		l.conns.mu.Lock()
		defer l.conns.mu.Unlock()
		return len(l.conns.byUser[1000]) == MaxConnsPerUser
	}, 5*time.Second, time.Millisecond)
	_, err = client.New(path).Status(t.Context())
	var e *api.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, api.CodeBusy, e.Code)
	require.NotEmpty(t, e.Hint)
}

func TestCommandOfReservation(t *testing.T) {
	r := api.Reservation{Link: "eth0", PeriodNS: 10e6, SliceNS: 2e6, Extra: true}
	got := Command(Set, api.Subject{Kind: api.KindPID, ID: "7"}, api.Wish{Reserve: &r})
	if want := "sudo netnice reserve --pid 7 --link eth0 --period 10ms --slice 2ms --extra"; got != want {
		t.Errorf("the remedy is %q, want %q", got, want)
	}
}
