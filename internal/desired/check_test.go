package desired_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/units"
)

// whole parses a file without damage.
func whole(t *testing.T, text []byte) *desired.State {
	t.Helper()
	s, err := desired.Parse(text, "boot")
	require.NoError(t, err)
	require.NoError(t, s.Damage)
	return s
}

func TestStateOutOfRange(t *testing.T) {
	for node, says := range desiredtest.Spoilt {
		s, err := desired.Parse(desiredtest.SpoiltText(node), "boot")
		require.NoError(t, err)
		require.ErrorContains(t, s.Damage, says, node)
		require.Empty(t, s.Nodes)
		// The same holds for a file with checksums.
		var saved desired.Record
		require.NoError(t, json.Unmarshal([]byte(`{"id":1,`+node+`}`), &saved))
		s, err = desired.Parse(desiredtest.Text(t, "boot", 22, saved), "boot")
		require.NoError(t, err)
		require.ErrorContains(t, s.Damage, says, node)
		require.Empty(t, s.Nodes)
	}
	s := whole(t, []byte(desiredtest.Whole))
	require.Len(t, s.Nodes, 10)
	require.Equal(t, s.Nodes, whole(t, desiredtest.Text(t, "boot", 22, s.Nodes...)).Nodes)
	s = whole(t, desiredtest.SpoiltText(`"kind":8,"subject":{"kind":"host"},"admin":{"up_bytes_per_sec":18446744073709551615}`))
	require.Equal(t, units.MaxRate, s.Nodes[0].Admin.Up, "a release before had no bound")
}
