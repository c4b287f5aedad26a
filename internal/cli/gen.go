package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// gen writes the files of the project that are generated from the commands.
func (a *App) gen() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "gen",
		Short:  "Generate files of the project",
		Hidden: true,
		Args:   between(0, 0),
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "completions DIR",
		Short: "Write completions for bash, zsh and fish",
		Args:  between(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return errors.Join(writeCompletions(args[0], cmd.Root()), writeCompletions(args[0], a.nlimit()))
		},
	})
	return cmd
}

// writeCompletions writes a program's completions into a folder, a file for each shell.
func writeCompletions(folder string, program *cobra.Command) error {
	for name, write := range map[string]func(io.Writer) error{
		program.Name() + ".bash": func(w io.Writer) error { return writeBashCompletion(w, program) },
		"_" + program.Name():     program.GenZshCompletion,
		program.Name() + ".fish": func(w io.Writer) error { return program.GenFishCompletion(w, true) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return fmt.Errorf("generate %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write completions: %w", err)
		}
	}
	return nil
}

const (
	// bashPackageCall is the only line of the generated script that needs the package bash-completion.
	bashPackageCall = `    _get_comp_words_by_ref "$@" cur prev words cword
`
	// bashOwnWords does the same without the package. Bash gives a word in pieces, split at = and :. Pieces
	// without a blank between them in the line are one word.
	bashOwnWords = `    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i piece rest line=${COMP_LINE:0:COMP_POINT}
    words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        rest=${line#"${line%%[![:space:]]*}"}
        if ((i == COMP_CWORD)); then
            piece=$rest
        fi
        if ((i > 0)) && [[ $rest == "$line" ]]; then
            words[${#words[@]}-1]+=$piece
        else
            words+=("$piece")
        fi
        line=${rest#"$piece"}
    done
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=
    if ((cword > 0)); then
        prev=${words[cword-1]}
    fi
`
)

// writeBashCompletion writes a script that needs nothing but bash.
func writeBashCompletion(w io.Writer, root *cobra.Command) error {
	var text bytes.Buffer
	if err := root.GenBashCompletionV2(&text, true); err != nil {
		return err
	}
	if n := strings.Count(text.String(), bashPackageCall); n != 1 {
		return fmt.Errorf("the script calls bash-completion's functions %d times, not once", n)
	}
	_, err := io.WriteString(w, strings.Replace(text.String(), bashPackageCall, bashOwnWords, 1))
	return err
}
