package background

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDaemonEnvironment(t *testing.T) {
	require.Equal(t, []string{"PATH=/bin", "NETNICE_SOCKET=/s"},
		environment([]string{"PATH=/bin", "LD_PRELOAD=x", "SSH_AUTH_SOCK=/a", "NETNICE_SOCKET=/s"}))
}
