package narrow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/lab/internal/routed"
)

// Both sending hosts have the settings of 2001, and nobody else has them.
func TestTCPOf2001(t *testing.T) {
	testutil.RequireRoot(t)
	s, err := routed.Open(250)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	setting := func(n *testbed.NetNS, name string) (value string) {
		require.NoError(t, n.Do(func() error {
			text, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4", name))
			if name == rtoSetting && os.IsNotExist(err) {
				return nil
			}
			value = strings.TrimSpace(string(text))
			return err
		}))
		return value
	}
	require.NoError(t, age(s))
	for name, want := range settingsOf2001() {
		for _, n := range []*testbed.NetNS{s.Source, s.Others} {
			if got := setting(n, name); got != "" || name != rtoSetting {
				require.Equal(t, want, got, name)
			}
		}
		require.NotEqual(t, want, setting(s.Sink, name), name)
	}
	require.Equal(t, "reno", Transfer{TCPOf2001: true}.congestion())
	require.Equal(t, "cubic", Transfer{}.congestion())
}
