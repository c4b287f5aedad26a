package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/internal/wrap"
)

// help prints the text of --help, in lines of the width for an output that does not tell its own (wrap.Unknown).
func (a *App) help(cmd *cobra.Command, _ []string) {
	text := wrap.Text(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), wrap.Unknown)
	fmt.Fprint(a.Out, text+"\n"+wrapUsage(cmd.UsageString()))
}

// wrapUsage breaks the lines of a command's usage, which are laid out already.
func wrapUsage(text string) string {
	var out strings.Builder
	isUsage := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if isUsage {
			out.WriteString(wrap.Usage(line, wrap.Unknown))
		} else {
			out.WriteString(wrap.Line(line, wrap.Unknown))
		}
		isUsage = line == "Usage:"
	}
	return out.String()
}
