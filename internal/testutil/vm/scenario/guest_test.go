package scenario

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const megabyte = 1e6

// answers waits until the daemon answers: under emulation the kernel takes its time to verify all programs.
func answers(t *testing.T) {
	t.Helper()
	began := time.Now()
	for {
		said, err := exec.Command("netnice", "status").CombinedOutput()
		if err == nil {
			t.Logf("the daemon answers after %v", time.Since(began))
			return
		}
		require.Less(t, time.Since(began), 2*time.Minute, "netnice status: %s", said)
		time.Sleep(200 * time.Millisecond)
	}
}

// TestGuest runs in the guest; on the host it does nothing.
func TestGuest(t *testing.T) {
	if os.Getenv("NETNICE_VM") != "1" {
		return
	}
	if to := os.Getenv("SCENARIO_SEND_TO"); to != "" {
		send(t, to)
		return
	}
	before := netniceState(t)
	daemon := start(t, exec.Command("netnice", "daemon"))
	answers(t)

	t.Run("a limit from the start, 4 connections", func(t *testing.T) {
		r := receive(t)
		start(t, r.sender(4, 1, "netnice", "run", "--up", "1MB/s", "--loopback", "--"))
		r.holds(t, megabyte, 2*time.Second)
	})
	t.Run("a child shares the limit", func(t *testing.T) {
		r := receive(t)
		start(t, r.sender(1, 3, "netnice", "run", "--up", "1MB/s", "--loopback", "--"))
		r.holds(t, megabyte, 2*time.Second)
		require.EqualValues(t, 3, r.connections.Load(), "one a process")
	})
	t.Run("set, changed and lifted while it sends", func(t *testing.T) {
		r := receive(t)
		sender := start(t, r.sender(1, 1))
		pid := strconv.Itoa(sender.Process.Pid)
		free := r.rate(time.Second)
		require.Greater(t, free, 2*megabyte, "the emulated machine is too slow for this test")
		netnice(t, "set", "--pid", pid, "--up", "1MB/s", "--loopback")
		r.holds(t, megabyte, 3*time.Second)
		why, err := exec.Command("netnice", "why", pid).CombinedOutput()
		require.NoError(t, err, string(why))
		require.Contains(t, string(why), "pid:"+pid+" up binds", string(why))
		netnice(t, "set", "--pid", pid, "--up", "500kB/s", "--loopback")
		r.holds(t, megabyte/2, time.Second)
		netnice(t, "unset", "--pid", pid)
		require.Eventually(t, func() bool { return r.rate(time.Second) > free/3 }, 20*time.Second, time.Millisecond, "it does not send freely again")
	})
	t.Run("the limit outlives the daemon", func(t *testing.T) {
		r := receive(t)
		start(t, r.sender(2, 1, "netnice", "run", "--up", "500kB/s", "--loopback", "--"))
		r.holds(t, megabyte/2, 2*time.Second)
		require.NoError(t, daemon.Process.Kill())
		_ = daemon.Wait()
		r.holds(t, megabyte/2, time.Second)
	})
	netnice(t, "down")
	require.Eventually(t, func() bool { return netniceState(t) == before }, 5*time.Second, 200*time.Millisecond,
		"before %q, after down %q", before, netniceState(t))
}

// netniceState lists netnice's pins.
func netniceState(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/fs/bpf")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func netnice(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("netnice", args...).CombinedOutput()
	require.NoError(t, err, "netnice %v: %s", args, out)
	t.Logf("netnice %s: %s", strings.Join(args, " "), out)
}

// start starts a command and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// receiver counts arriving bytes.
type receiver struct {
	address     string
	bytes       atomic.Int64
	connections atomic.Int64
}

func receive(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	r := &receiver{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.connections.Add(1)
			go func() {
				defer conn.Close() //nolint:errcheck // it is only read
				buffer := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buffer)
					r.bytes.Add(int64(n))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return r
}

// rate returns the bytes per second that arrive, over a time.
func (r *receiver) rate(window time.Duration) float64 {
	from, start := r.bytes.Load(), time.Now()
	time.Sleep(window)
	return float64(r.bytes.Load()-from) / time.Since(start).Seconds()
}

// holds checks that the rate is that of the limit, after a time to settle.
func (r *receiver) holds(t *testing.T, limit float64, settle time.Duration) {
	t.Helper()
	rated(t, limit, func(*testing.T) float64 {
		time.Sleep(settle)
		return r.rate(4 * time.Second)
	})
}

// sender is a command that sends over some connections, from each of a chain of
// processes, started by the words of prefix.
func (r *receiver) sender(connections, processes int, prefix ...string) *exec.Cmd {
	argv := slices.Concat(prefix, []string{os.Args[0], "-test.run=^TestGuest$"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "SCENARIO_SEND_TO="+r.address,
		"SCENARIO_CONNECTIONS="+strconv.Itoa(connections), "SCENARIO_PROCESSES="+strconv.Itoa(processes))
	return cmd
}

// send sends for ever, and starts the next process of the chain. A process ends when its parent has ended.
func send(t *testing.T, to string) {
	t.Helper()
	connections, err := strconv.Atoi(os.Getenv("SCENARIO_CONNECTIONS"))
	require.NoError(t, err)
	processes, err := strconv.Atoi(os.Getenv("SCENARIO_PROCESSES"))
	require.NoError(t, err)
	if processes > 1 {
		child := exec.Command(os.Args[0], os.Args[1:]...)
		child.Env = append(os.Environ(), "SCENARIO_PROCESSES="+strconv.Itoa(processes-1))
		start(t, child)
	}
	failed := make(chan error)
	for range connections {
		go func() {
			conn, err := net.Dial("tcp", to)
			for data := make([]byte, 64<<10); err == nil; {
				_, err = conn.Write(data)
			}
			failed <- err
		}()
	}
	parent := os.Getppid()
	for {
		select {
		case err := <-failed:
			require.NoError(t, err)
		case <-time.After(200 * time.Millisecond):
			if os.Getppid() != parent {
				return
			}
		}
	}
}
