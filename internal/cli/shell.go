package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

func (a *App) shellInit() *cobra.Command {
	names := slices.Sorted(maps.Keys(shell.Dialects()))
	return &cobra.Command{
		Use:   "shell-init bash|zsh|fish",
		Short: "Print what has a shell understand: ftp ftp.foo.com @128Kbyte/sec",
		Long: `Print what an interactive shell is to evaluate at its start. Then a command whose last
word is @RATE runs, with its children, under a limit on what it sends and receives
together: in pipelines and loops, in the background, with redirections; functions,
builtins and aliases, too. A line of @RATE alone limits the shell itself, @none lifts
that. Quoted, or as \@, it is a word like others; what looks like a rate but is none is
refused. Where a command has several lines, bash refuses an @RATE that is not on the
first; Up brings the command back in one piece, and Enter runs it under the limit.`,
		Example:   "  eval \"$(netnice shell-init bash)\"      # in ~/.bashrc; likewise zsh\n  netnice shell-init fish | source      # in ~/.config/fish/config.fish",
		ValidArgs: names,
		Args:      between(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := dialect(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.Out, shell.Init(d))
			return err
		},
	}
}

// shellLine is the command that the shells call to rewrite a line.
func (a *App) shellLine() *cobra.Command {
	return &cobra.Command{
		Use:                "shell-line SHELL LINE",
		Short:              "Print a line as a shell is to run it",
		Hidden:             true,
		DisableFlagParsing: true, // the line may begin like a flag
		Args:               between(2, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := dialect(args[0])
			if err != nil {
				return err
			}
			line, err := shell.Rewrite(args[1], d)
			var parse *units.ParseError
			if errors.As(err, &parse) {
				return fail(parse.Remedy+`, or \@`+parse.Text+" for a word that is no rate", "not run: %v", err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.Out, line)
			return err
		},
	}
}

func dialect(name string) (shell.Dialect, error) {
	d, known := shell.Dialects()[name]
	if slices.Contains([]string{"sh", "dash", "ash", "ksh", "mksh"}, name) {
		return 0, fail("netnice run --total RATE -- COMMAND", "%s has no means to change a line before it runs: @RATE is a word like others there", name)
	}
	if !known {
		return 0, fail("netnice shell-init "+strings.Join(slices.Sorted(maps.Keys(shell.Dialects())), "|"), "no such shell is known: %q", name)
	}
	return d, nil
}
