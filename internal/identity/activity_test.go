package identity

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestActivity(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, "7", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("stat", "7 (netnice) t 1 7 7 0 -1 4194560 0 0 0 0 150 50 0 0 20 0 2 0 5 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	write("status", "Name:\tnetnice\nState:\tt (tracing stop)\nTracerPid:\t9\n")
	write("task/7/status", "Name:\tnetnice\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n")
	write("task/7/wchan", "futex_do_wait")
	write("task/7/syscall", "202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x46\n")
	write("task/8/status", "Name:\tnetnice\nState:\tD (disk sleep)\nvoluntary_ctxt_switches:\t3\n")
	write("task/8/wchan", "0") // the caller may not know it
	write("task/8/syscall", "running\n")
	write("task/8/stack", "[<0>] rtnl_lock+0x15/0x20\n[<0>] rtnetlink_rcv_msg+0x1/0x2\n")
	r := newResolver(t, Options{Proc: proc})
	a, err := r.Activity(7)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), a.At, time.Minute)
	a.At = time.Time{}
	require.Equal(t, Activity{PID: 7, Busy: 2 * time.Second, State: 't', Tracer: 9, Threads: []ThreadActivity{
		{TID: 7, State: 'S', Switches: 7, Function: "futex_do_wait", Call: 202},
		{TID: 8, State: 'D', Switches: 3, Function: "rtnl_lock", Call: -1, Path: []string{"rtnl_lock", "rtnetlink_rcv_msg"}},
	}}, a)
	_, err = r.Activity(99)
	require.Error(t, err)
}

// The machine's own /proc has the files that Activity reads.
func TestActivityOfThisProcess(t *testing.T) {
	a, err := newResolver(t, Options{}).Activity(os.Getpid())
	require.NoError(t, err)
	require.NotEmpty(t, a.Threads)
	require.Contains(t, "RS", string(a.State))
	require.Zero(t, a.Tracer)
	var switches uint64
	for _, thread := range a.Threads {
		switches += thread.Switches
	}
	require.NotZero(t, switches)
}
