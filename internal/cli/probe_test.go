package cli

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/probe"
)

// A probe that the kernel refuses is a denial, with its own exit code; silence is not.
func TestProbeDenied(t *testing.T) {
	a := new(App)
	a.Err = t.Output()
	require.Equal(t, exitDenied, a.report(unreachableHost(errors.Join(probe.ErrDenied))))
	require.Equal(t, exitFailed, a.report(unreachableHost(probe.ErrSilent)))
	require.NoError(t, unreachableHost(nil))
}
