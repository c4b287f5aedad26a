package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournalPriorities(t *testing.T) {
	var out bytes.Buffer
	a := &App{Err: &out, Journal: true}
	log := a.logger(a.Err, slog.LevelInfo).With("node", 7)
	log.Debug("nobody asked")
	log.Info("limit set", "level", "high", "time", "now")
	log.Warn("two\nlines")
	log.WithGroup("of").Error("broken", "err", "no room")
	require.Equal(t, "<6>msg=\"limit set\" node=7 level=high time=now\n<4>msg=\"two\\nlines\" node=7\n<3>msg=broken node=7 of.err=\"no room\"\n", out.String())

	out.Reset()
	require.Equal(t, exitUsage, a.report(fail("do this\nor that", "no bpffs")))
	require.Equal(t, "<3>netnice: no bpffs\n<3>  do this\n<3>  or that\n", out.String())

	out.Reset()
	a.Journal = false
	a.logger(a.Err, slog.LevelDebug).Debug("asked for")
	require.Regexp(t, `^time=\S+ level=DEBUG msg="asked for"\n$`, out.String())
	require.Equal(t, journalDebug, journalPriority(slog.LevelDebug))
}

func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "daemon.log")
	l, err := openRotatingLog(path, 1000)
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
	l, err = openRotatingLog(path, 1000)
	require.NoError(t, err)
	_, err = l.Write([]byte(strings.Repeat(line, 6)))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Len(t, text, 600)

	// A line that is longer than a file is written whole.
	_, err = l.Write([]byte(strings.Repeat(line, 30)))
	require.NoError(t, err)
	require.Equal(t, int64(3000), logSize(path))
}

// A daemon's other output goes where its log goes.
func TestLogTakesOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	other, err := os.Create(path + ".other")
	require.NoError(t, err)
	defer other.Close()
	l, err := openRotatingLog(path, 10, int(other.Fd()))
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
