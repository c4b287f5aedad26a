package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	routeTitle = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	noPrefix   = "00000000000000000000000000000000"
)

func TestDefaultDevice(t *testing.T) {
	six := func(bits, metric, flags, device string) string {
		return noPrefix + " " + bits + " " + noPrefix + " 00 fe800000000000000000000000000001 " + metric + " 00000001 00000000 " + flags + "    " + device + "\n"
	}
	for name, c := range map[string]struct{ four, six, want string }{
		"none": {routeTitle, "", ""},
		"the least metric": {
			routeTitle + "wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
				"eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" +
				"docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n", "", "eth0",
		},
		"half of all addresses is not the default": {
			routeTitle + "tun0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000080\t0\t0\t0\n" +
				"eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n", "", "eth0",
		},
		"unreachable":   {routeTitle + "*\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n", "", ""},
		"IPv6 alone":    {routeTitle, six("00", "ffffffff", "00200200", "lo") + six("40", "00000001", "00000001", "eth1") + six("00", "00000400", "00000003", "eth0"), "eth0"},
		"no such table": {"", "", ""},
		"cut short":     {routeTitle + "eth0\t00000000\n", "", ""},
	} {
		proc := t.TempDir()
		dir := filepath.Join(proc, "self/net")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		if c.four != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "route"), []byte(c.four), 0o600))
		}
		if c.six != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ipv6_route"), []byte(c.six), 0o600))
		}
		require.Equal(t, c.want, DefaultDevice(proc), name)
	}
}
