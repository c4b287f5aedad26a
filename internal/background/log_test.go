package background

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "daemon.log")
	l, err := OpenLog(path, 1000)
	require.NoError(t, err)
	line := strings.Repeat("x", 99) + "\n"
	for range 95 {
		n, err := l.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, 100, n)
	}
	sizes := map[string]int64{}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		sizes[e.Name()] = info.Size()
	}
	require.Equal(t, map[string]int64{"daemon.log": 500, "daemon.log.1": 1000}, sizes)

	// The size of a file that was there before counts.
	l, err = OpenLog(path, 1000)
	require.NoError(t, err)
	_, err = l.Write([]byte(strings.Repeat(line, 6)))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, text, 600)

	// A line that is longer than a file is written whole.
	_, err = l.Write([]byte(strings.Repeat(line, 30)))
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, int64(3000), info.Size())
}

// A daemon's other output goes where its log goes.
func TestLogTakesOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	other, err := os.Create(path + ".other")
	require.NoError(t, err)
	defer other.Close()
	l, err := OpenLog(path, 10, int(other.Fd()))
	require.NoError(t, err)
	for _, text := range []string{"12345678\n", "abcdefgh\n"} {
		_, err := l.Write([]byte(text))
		require.NoError(t, err)
	}
	_, err = other.WriteString("panic\n")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "abcdefgh\npanic\n", string(text))
}
