package daemon

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// A request by a socket option has the rights of the program that makes it, and gets its answer.
func TestRequests(t *testing.T) {
	const uid = 61234
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	own := exec.Command("sleep", "60")
	own.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := own.Start(); err != nil {
		t.Skipf("start a process of another user: %v", err)
	}
	t.Cleanup(func() { end(own) })
	others := sleeper(t)
	number := uint64(0)
	ask := func(r enforce.Request) enforce.Answer {
		t.Helper()
		number++
		r.Number = number
		return h.ask(r)
	}
	by := enforce.Request{PID: own.Process.Pid, UID: uid, GID: uid, Kind: enforce.KindTree}
	with := func(change func(r *enforce.Request)) enforce.Request {
		r := by
		change(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		r     enforce.Request
		errno unix.Errno
		holds uint64
	}{
		{"asked before", with(func(r *enforce.Request) { r.Ask = true }), 0, 0},
		{"itself", with(func(r *enforce.Request) { r.BytesPerSec = 5000 }), 0, 5000},
		{"asked", with(func(r *enforce.Request) { r.Ask = true }), 0, 5000},
		{"by its pid", with(func(r *enforce.Request) { r.Who, r.BytesPerSec = uint32(r.PID), 6000 }), 0, 6000},
		{"another direction", with(func(r *enforce.Request) { r.Ask, r.Direction = true, enforce.Down }), 0, 0},
		{"its user", with(func(r *enforce.Request) { r.Kind, r.Direction, r.BytesPerSec = enforce.KindUser, enforce.Total, 7000 }), 0, 7000},
		{"another user", with(func(r *enforce.Request) { r.Kind, r.Who, r.BytesPerSec = enforce.KindUser, uid+1, 7000 }), unix.EPERM, 0},
		{"another's process", with(func(r *enforce.Request) { r.Who, r.BytesPerSec = uint32(others.Process.Pid), 7000 }), unix.EPERM, 0},
		{"the machine", with(func(r *enforce.Request) { r.Who, r.BytesPerSec = 1, 7000 }), unix.EPERM, 0},
		{"nobody", with(func(r *enforce.Request) { r.Who, r.BytesPerSec = 1<<30, 7000 }), unix.ESRCH, 0},
		{"another's process, an administrator", with(func(r *enforce.Request) { r.Who, r.BytesPerSec, r.Admin = uint32(others.Process.Pid), 8000, true }), 0, 8000},
		{"the same, lifted by who may not", with(func(r *enforce.Request) { r.Who = uint32(others.Process.Pid) }), unix.EPERM, 0},
		{"the same, lifted", with(func(r *enforce.Request) { r.Who, r.Admin = uint32(others.Process.Pid), true }), 0, 0},
		{"lifted", by, 0, 0},
		{"lifted, its user", with(func(r *enforce.Request) { r.Kind, r.Direction = enforce.KindUser, enforce.Total }), 0, 0},
	} {
		got := ask(c.r)
		require.Equal(t, enforce.Answer{Errno: uint32(c.errno), BytesPerSec: c.holds}, got, c.name)
	}
	require.Zero(t, h.count(), "nothing is left")
}

// Requests about limits are answered, also the same process's, however many requests about the processors wait while
// systemd is slow. Requests about the processors for which there is no room are refused at once.
func TestRequestsAreAnsweredBesideSlowOnes(t *testing.T) {
	const slow = 2*requestsWaiting + 2
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	pid := sleeper(t).Process.Pid
	by := enforce.Request{PID: pid, Admin: true, Kind: enforce.KindTree}
	unlock := h.holdCPUShares()
	defer unlock()
	r := by
	for r.OfPower, r.Ask = true, true; r.Number < slow; {
		r.Number++
		fake.Request(r)
	}
	r = by
	r.Number, r.BytesPerSec = slow+1, 5000
	require.Equal(t, enforce.Answer{BytesPerSec: 5000}, h.ask(r))
	refused := 0
	for number := uint64(1); number <= slow; number++ {
		if a, answered := fake.Answered(number); answered {
			require.Equal(t, enforce.Answer{Errno: uint32(unix.EAGAIN)}, a)
			refused++
		}
	}
	// One request is under way, unless its worker has not begun.
	require.GreaterOrEqual(t, refused, slow-requestsWaiting-1)
	require.LessOrEqual(t, refused, slow-requestsWaiting)
	unlock()
	h.eventually("the others are answered", func() bool {
		for number := range uint64(slow) {
			if _, answered := fake.Answered(number + 1); !answered {
				return false
			}
		}
		return true
	})
}

// A user's unanswered requests about the processors are so few that those of others find room.
func TestRequestsAboutProcessorsOfOneUser(t *testing.T) {
	const user, other, asked = 61234, 61235, 2 * requestsWaiting
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	r := enforce.Request{PID: sleeper(t).Process.Pid, UID: user, Kind: enforce.KindTree, OfPower: true, Ask: true}
	unlock := h.holdCPUShares()
	defer unlock()
	for r.Number < asked {
		r.Number++
		fake.Request(r)
	}
	r.Number, r.UID = asked+1, other
	fake.Request(r)
	// The answer of another queue shows that the requests before it are in their queue, or refused.
	limit := enforce.Request{Number: asked + 2, PID: r.PID, Admin: true, Kind: enforce.KindTree, BytesPerSec: 5000}
	require.Equal(t, enforce.Answer{BytesPerSec: 5000}, h.ask(limit))
	refused := 0
	for number := uint64(1); number <= asked; number++ {
		if a, answered := fake.Answered(number); answered {
			require.Equal(t, enforce.Answer{Errno: uint32(unix.EAGAIN)}, a)
			refused++
		}
	}
	require.Equal(t, asked-auth.MaxPowerAsksPerUser, refused)
	unlock()
	h.eventually("the other user has an answer", func() bool {
		_, answered := fake.Answered(asked + 1)
		return answered
	})
	a, _ := fake.Answered(asked + 1)
	require.Zero(t, a.Errno)
	r.Number, r.UID = asked+3, user
	require.Zero(t, h.ask(r).Errno, "the first user may ask again")
}

// A request that had to wait is not carried out once its program has given up.
func TestRequestsOfWhoHasGivenUp(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	r := enforce.Request{Number: 1, PID: sleeper(t).Process.Pid, Admin: true, Kind: enforce.KindTree, BytesPerSec: 5000}
	r.At = time.Now().Add(-enforce.RequestPatience - time.Second)
	require.Equal(t, enforce.Answer{Errno: uint32(unix.ETIMEDOUT)}, h.ask(r))
	require.Zero(t, h.count())
	r.Number, r.At = 2, time.Now()
	require.Equal(t, enforce.Answer{BytesPerSec: 5000}, h.ask(r))
}
