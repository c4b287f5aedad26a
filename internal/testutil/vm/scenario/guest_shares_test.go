package scenario

import (
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// TestGuestShares runs in the guest; on the host it does nothing.
func TestGuestShares(t *testing.T) {
	if os.Getenv("NETNICE_VM") != "1" {
		return
	}
	const limit = 800e3
	p := testutil.MustPair(t)
	daemon := start(t, exec.Command("netnice", "daemon"))
	answers(t)
	ports := []uint16{testbed.DefaultPort, testbed.DefaultPort + 1}
	rx, err := testbed.StartReceiver(p.B, testbed.ReceiverConfig{
		Interval: 50 * time.Millisecond, Ports: []testbed.Port{{Number: ports[0]}, {Number: ports[1]}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = rx.Close() })
	var pids [2]string
	for i, connections := range []int{1, 4} {
		tx, err := testbed.StartSender(p.A, testbed.SenderConfig{To: netip.AddrPortFrom(p.B4, ports[i]).String(), Connections: connections})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Close() })
		_, err = tx.Start()
		require.NoError(t, err)
		pids[i] = strconv.Itoa(tx.PID())
	}
	// parts waits for the change to take effect. Then it checks that all of the limit is used and each program has
	// its part.
	parts := func(t *testing.T, wait time.Duration, first, second float64) {
		t.Helper()
		rated(t, limit, func(t *testing.T) float64 {
			time.Sleep(wait)
			from := testbed.Now()
			time.Sleep(4 * time.Second)
			to := testbed.Now()
			time.Sleep(100 * time.Millisecond)
			const perByte = 1 + 52.0/1448
			a, b := rx.Goodput(ports[0], from, to)*perByte, rx.Goodput(ports[1], from, to)*perByte
			t.Logf("%.4f and %.4f of the limit, wanted %.2f and %.2f", a/limit, b/limit, first, second)
			require.InDelta(t, first, a/(a+b), 0.08)
			require.InDelta(t, second, b/(a+b), 0.08)
			if sum := a + b; sum < limit && sum > 0.75*limit {
				return limit // a fixed rate, before 6.12, does not make up for late timers
			}
			return a + b
		})
	}
	t.Run("by weight", func(t *testing.T) {
		netnice(t, "fair", "--group", "both", "--up", "800kB/s", pids[0], pids[1]+"=300")
		parts(t, 2*time.Second, 0.25, 0.75)
	})
	t.Run("guaranteed", func(t *testing.T) {
		// The first gets half of the limit, and a quarter of the rest.
		netnice(t, "set", "--pid", pids[0], "--min", "400kB/s")
		parts(t, 2*time.Second, 0.625, 0.375)
		netnice(t, "unset", "--pid", pids[0])
		netnice(t, "unset", "--group", "both")
	})
	t.Run("reserved of a link", func(t *testing.T) {
		in := func(args ...string) {
			t.Helper()
			t.Logf("%s", tool(t, p.A, "", append([]string{"netnice"}, args...)...))
		}
		in("link", testbed.Device, "--up", "800kB/s")
		in("reserve", "--pid", pids[0], "--link", testbed.Device, "--period", "50ms", "--slice", "15ms")
		parts(t, 2*time.Second, 0.3, 0.7)
	})
	require.NoError(t, daemon.Process.Kill())
	_ = daemon.Wait()
	t.Run("by nobody looked after", func(t *testing.T) { parts(t, time.Second, 0.3, 0.7) })
}
