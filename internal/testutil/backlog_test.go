package testutil

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBacklogIsRaisedAndRestored(t *testing.T) {
	for _, c := range []struct{ former, note, during, after string }{
		{"1000\n", "", "10007", "1000"},
		{"300\n", "500", "10007", "300"}, // an old note
		{"10007\n", "", "10007", "1000"},
		{"10007\n", "300", "10007", "300"}, // a run was killed
		{"20000\n", "", "20000\n", "20000\n"},
		{"many", "", "many", "many"},
	} {
		file, note := filepath.Join(t.TempDir(), "backlog"), filepath.Join(t.TempDir(), "note")
		require.NoError(t, os.WriteFile(file, []byte(c.former), 0o600))
		if c.note != "" {
			require.NoError(t, os.WriteFile(note, []byte(c.note), 0o600))
		}
		is := func() string {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			return string(text)
		}
		restore := raiseBacklog(file, note)
		require.Equal(t, c.during, is(), c)
		restore()
		require.Equal(t, c.after, is(), c)
		require.NoFileExists(t, note)
	}
	missing, note := filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "note")
	raiseBacklog(missing, note)()
	require.NoFileExists(t, missing)
	require.NoFileExists(t, note)
}

// A run that begins while another one has raised the bound leaves it alone.
func TestBacklogIsRaisedOnce(t *testing.T) {
	file, note := filepath.Join(t.TempDir(), "backlog"), filepath.Join(t.TempDir(), "note")
	require.NoError(t, os.WriteFile(file, []byte("300"), 0o600))
	first := raiseBacklog(file, note)
	raiseBacklog(file, note)()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "10007", string(text))
	first()
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "300", string(text))
}
