package testutil

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBacklogIsRaisedAndRestored(t *testing.T) {
	for former, c := range map[string]struct{ during, after string }{
		"1000\n":  {"10007", "1000"},
		"300\n":   {"10007", "300"},
		"10007\n": {"10007", "1000"}, // a run was killed
		"20000\n": {"20000\n", "20000\n"},
		"many":    {"many", "many"},
	} {
		file := filepath.Join(t.TempDir(), "backlog")
		require.NoError(t, os.WriteFile(file, []byte(former), 0o600))
		is := func() string {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			return string(text)
		}
		restore := raiseBacklog(file)
		require.Equal(t, c.during, is(), former)
		restore()
		require.Equal(t, c.after, is(), former)
	}
	missing := filepath.Join(t.TempDir(), "none")
	raiseBacklog(missing)()
	require.NoFileExists(t, missing)
}
