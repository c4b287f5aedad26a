package verdicts

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Further folders of figures are read, and the table has the figures of all runs and their times.
func TestSeveralRuns(t *testing.T) {
	write := func(folder, minute, median string) string {
		dir := filepath.Join(t.TempDir(), folder)
		require.NoError(t, os.Mkdir(dir, 0o755))
		text := `{"time": "2026-11-30T10:` + minute + `:00Z", "figures": [{"link": "a line", "ours": {"with_over_without": {"median": ` + median + `}}}]}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "e26-throughput.json"), []byte(text), 0o644))
		return dir
	}
	readme := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("before\n"+begin+"old\n"+end+"\nafter\n"), 0o644))
	dirs := []string{write("out", "03", "0.9"), write("second", "01", "0.99"), write("third", "02", "0.98")}
	call := func(args ...string) int {
		flags := flag.NewFlagSet("verdicts", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		return Main(flags, args)
	}
	require.Equal(t, 1, call("-out", dirs[0], "-runs", dirs[1]+","+dirs[2], "-readme", readme)) // the other experiments are not measured
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\| E26 \| TCP with half .* \| 0\.9 \| 0\.98; 0\.99 \| pass \|$`, string(text))
	require.Regexp(t, `(?s)^before\n.*\| e26-throughput \| 2026-11-30 10:03 \|.*\| e26-throughput \| 2026-11-30 10:01 \|.*\nafter\n$`, string(text))
	require.NotContains(t, string(text), "old")

	require.NoError(t, os.WriteFile(readme, []byte(begin+end), 0o644))
	require.Equal(t, 1, call("-out", dirs[0], "-readme", readme))
	text, err = os.ReadFile(readme)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\| E26 \| TCP with half .* \| 0\.9 \| miss \|$`, string(text))

	require.NoError(t, os.WriteFile(readme, []byte(begin+end), 0o644))
	require.Equal(t, 1, call("-out", dirs[0], "-runs", dirs[1]+"-mistyped", "-readme", readme))
	text, err = os.ReadFile(readme)
	require.NoError(t, err)
	require.Equal(t, begin+end, string(text))
}
