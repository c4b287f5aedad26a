package daemon

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// TestOnDemandNeverLeavesALimitBehind sends requests just while the daemon decides to leave. Either the daemon does not
// answer, or the limit holds until it is lifted.
func TestOnDemandNeverLeavesALimitBehind(t *testing.T) {
	testutil.RequireRoot(t) // only the administrator may limit the host
	const rounds = 30
	answered := 0
	for i := range rounds {
		fake := &enforcetest.Kernel{}
		opts := testOptions(t, fake)
		opts.OnDemand = true
		opts.IdleAfter, opts.FirstWait, opts.Tick = 5*time.Millisecond, 5*time.Millisecond, time.Millisecond
		opened := make(chan struct{})
		opts.opened = func(*Daemon) { close(opened) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, opts) }()
		<-opened
		time.Sleep(time.Duration(i) * 10 * time.Millisecond / rounds)

		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return net.Dial("unix", opts.SocketPath)
			},
		}}
		call := func(method, path, body string) bool {
			req, err := http.NewRequest(method, "http://netnice"+path, bytes.NewBufferString(body))
			require.NoError(t, err)
			resp, err := client.Do(req)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}
		if call("PUT", "/v1/limits", `{"subject":{"kind":"host"},"wish":{"up_bytes_per_sec":1}}`) {
			answered++
			require.Never(t, func() bool { return fake.IsDown() || len(done) > 0 }, 4*opts.IdleAfter, time.Millisecond)
			require.Eventually(t, func() bool {
				return call("DELETE", "/v1/limits?subject="+string(api.KindHost), "")
			}, soon, poll)
		}
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(soon):
			require.Fail(t, "the daemon stays")
		}
		require.True(t, fake.IsDown())
		cancel()
	}
	t.Logf("answered %d of %d", answered, rounds)
}

func TestOnDemandLeaves(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.OnDemand = true
	h := start(t, fake, opts)
	proc := sleeper(t)
	node := h.mustSet(root, pidSubject(proc), up(1e6))
	time.Sleep(opts.FirstWait + opts.IdleAfter)
	require.False(t, h.gone(node.ID)())
	fake.SetStats(enforce.NodeStats{ID: node.ID})
	end(proc)
	require.NoError(t, h.wait())
	require.True(t, fake.IsDown())
	require.NoDirExists(t, opts.RunDir)
	require.NoDirExists(t, opts.StateDir)
}

func TestOnDemandThatNobodyAsked(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.OnDemand = true
	begin := time.Now()
	h := start(t, fake, opts)
	require.NoError(t, h.wait())
	require.GreaterOrEqual(t, time.Since(begin), opts.FirstWait)
	require.True(t, fake.IsDown())
}

func TestOnDemandSignalLiftsAll(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	opts.OnDemand = true
	h := start(t, fake, opts)
	h.mustSet(root, "host", up(1))
	require.NoError(t, h.stop())
	require.True(t, fake.IsDown())
	require.NoDirExists(t, opts.StateDir)
}
