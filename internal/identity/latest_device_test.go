package identity

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLatestDevice(t *testing.T) {
	var l LatestDevice
	start, looks := time.Now(), 0
	learn := func(after time.Duration, name string) {
		l.Learn(start.Add(after), func() string {
			looks++
			l.Learn(start.Add(after), func() string {
				t.Error("two looks at a time")
				return ""
			})
			return name
		})
	}
	require.Empty(t, l.Name())
	learn(0, "eth0")
	require.Equal(t, "eth0", l.Name())
	learn(LatestDevicePause-1, "eth1")
	require.Equal(t, "eth0", l.Name(), "the last look is recent")
	l.Learn(start.Add(LatestDevicePause), func() string {
		require.Equal(t, "eth0", l.Name(), "during a look")
		return "eth1"
	})
	require.Equal(t, "eth1", l.Name())
	require.Equal(t, 1, looks)
}
