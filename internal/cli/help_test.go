package cli

import (
	"cmp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/wrap"
)

// The help of every command fits a terminal of 80 columns, and has all of its text.
func TestHelpFitsATerminal(t *testing.T) {
	check := func(args []string, c *cobra.Command) {
		t.Helper()
		app, out := testApp()
		require.Zero(t, app.Run(t.Context(), append(args, "--help")), out)
		for line := range strings.Lines(out.String()) {
			line = strings.TrimRight(line, "\n")
			require.LessOrEqual(t, ansi.StringWidth(line), wrap.Unknown, "%s --help: %s", c.CommandPath(), line)
		}
		words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
		for _, text := range []string{cmp.Or(c.Long, c.Short), c.UseLine(), c.Example} {
			require.Contains(t, words(out.String()), words(text), "%s --help", c.CommandPath())
		}
	}
	app, _ := testApp()
	root, alone := app.root(), app.nlimit()
	plainUsage(root)
	plainUsage(alone)
	eachCommand(root, func(c *cobra.Command) {
		check(strings.Fields(c.CommandPath()), c)
	})
	check([]string{"nlimit"}, alone)
}
