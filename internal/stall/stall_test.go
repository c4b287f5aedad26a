package stall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/identity"
)

// The description of a daemon depends on the activity of its threads in two samples, nine seconds apart.
func TestDoing(t *testing.T) {
	type threads = []identity.ThreadActivity
	sleeps := identity.ThreadActivity{TID: 1, State: 'S', Switches: 5, Function: "futex_do_wait", Call: unix.SYS_FUTEX}
	hangs := identity.ThreadActivity{TID: 2, State: 'D', Switches: 7, Function: "rtnl_lock", Call: unix.SYS_SENDTO, Path: []string{"rtnl_lock", "rtnetlink_rcv_msg"}}
	works := hangs
	works.Switches = 8
	runs := identity.ThreadActivity{TID: 3, State: 'R', Call: -1}
	at := time.Unix(1000, 0)
	look := func(seconds int, busy time.Duration, list threads) identity.Activity {
		return identity.Activity{PID: 123, At: at.Add(time.Duration(seconds) * time.Second), Busy: busy, State: 'S', Threads: list}
	}
	for name, c := range map[string]struct {
		early, now threads
		busy       time.Duration
		does, hint string
	}{
		"hangs":            {threads{sleeps, hangs}, threads{sleeps, hangs}, 0, "waits in the kernel, in rtnl_lock (from rtnetlink_rcv_msg; system call sendto), for 9s at least", "sudo cat /proc/123/task/2/stack"},
		"waits for a disk": {threads{sleeps, hangs}, threads{sleeps, works}, 0, "sleeps, as do all its threads (futex_do_wait, rtnl_lock): it waits for itself, or for an answer", "sudo kill -QUIT 123"},
		"runs":             {threads{sleeps, runs}, threads{sleeps, runs}, 9 * time.Second, "runs: it used 100% of a processor in the last 9s", "sudo kill -QUIT 123"},
		"starves":          {threads{sleeps, runs}, threads{sleeps, runs}, 90 * time.Millisecond, "wants to run, and had 1% of a processor in the last 9s", "top"},
		"sleeps":           {threads{sleeps}, threads{sleeps}, 0, "sleeps, as do all its threads (futex_do_wait): it waits for itself, or for an answer", "sudo kill -QUIT 123"},
		"of root's":        {threads{{TID: 1, State: 'S', Call: -1}}, threads{{TID: 1, State: 'S', Call: -1}}, 0, "sleeps", "sudo netnice status"},
		"frozen":           {threads{{TID: 1, State: 'S', Function: "do_freezer_trap"}}, threads{{TID: 1, State: 'S', Function: "do_freezer_trap"}}, 0, "is frozen with its cgroup", "cgroup.freeze"},
	} {
		t.Run(name, func(t *testing.T) {
			early := look(0, time.Minute, c.early)
			does, hint := doing(&early, look(9, time.Minute+c.busy, c.now))
			require.Equal(t, c.does, does)
			require.Contains(t, hint, c.hint)
		})
	}
	does, _ := doing(nil, look(0, 0, threads{sleeps, works}))
	require.Equal(t, "waits in the kernel, in rtnl_lock (from rtnetlink_rcv_msg; system call sendto)", does, "nobody looked before")
	does, _ = doing(nil, identity.Activity{PID: 123, State: 'Z'})
	require.Equal(t, "has ended, and its parent has not waited for it", does)
}
