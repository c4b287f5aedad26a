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
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/testutil"
)

// TestOnDemandNeverLeavesALimitBehind asks just while the daemon makes up its
// mind to leave: either it does not answer, or the limit holds until lifted.
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
