package wrap

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHanging(t *testing.T) {
	require.Equal(t, "ok  a text that is\n    longer than a line\n", Hanging("ok  ", "a text that is longer than a line", 24))
	require.Equal(t, "ok  two  spaces\n", Hanging("ok  ", "two  spaces", 15), "what fits stays as it is")
	require.Equal(t, "ok  "+strings.Repeat("x ", 99)+"\n", Hanging("ok  ", strings.Repeat("x ", 99), 0))
	require.Equal(t, "ok  \n", Hanging("ok  ", "", 80))
	require.Equal(t, "ok  /a/path/that/is/longer/than/a/line\n    and\n", Hanging("ok  ", "/a/path/that/is/longer/than/a/line and", 20), "words are not cut")
}

func TestLine(t *testing.T) {
	require.Equal(t, "  --up rate   limit what is sent by\n              it\n", Line("  --up rate   limit what is sent by it", 36))
	require.Equal(t, "  no columns, but more than\n      has room\n", Line("  no columns, but more than has room", 27))
	require.Equal(t, "\n", Line("", 27))
}

func TestUsage(t *testing.T) {
	require.Equal(t, "  netnice set [--up RATE]\n      [--down RATE] PID\n", Usage("  netnice set [--up RATE] [--down RATE] PID", 26))
	require.Equal(t, "  set [--to PREFIX|--to-file\n      FILE [--each]] PID\n", Usage("  set [--to PREFIX|--to-file FILE [--each]] PID", 28), "inside of what is too wide")
}

func TestText(t *testing.T) {
	require.Equal(t, "One paragraph of two\nlines.\n\n  a list\n  stays\nand ends\n", Text("One paragraph\nof two lines.\n\n  a list\n  stays\nand\nends", 20))
}

// Broken text has the same words, in lines that fit the width.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		between := rapid.SampledFrom([]string{" ", "  "}).Draw(t, "between")
		text := strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z\[\]-]{1,12}`), 0, 30).Draw(t, "words"), between)
		width := rapid.IntRange(24, 100).Draw(t, "width")
		for _, broken := range []string{Hanging("> ", text, width), Line(text, width), Text(text, width), Usage(text, width)} {
			require.Equal(t, strings.Fields(text), strings.Fields(strings.TrimPrefix(broken, "> ")))
			for line := range strings.Lines(broken) {
				if between == " " { // no columns
					require.LessOrEqual(t, ansi.StringWidth(strings.TrimRight(line, "\n")), width, "%q", broken)
				}
			}
		}
	})
}
