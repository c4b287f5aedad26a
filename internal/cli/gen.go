package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// gen writes files of the project that follow from the commands.
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
			root := cmd.Root()
			for name, write := range map[string]func(io.Writer) error{
				"netnice.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
				"_netnice":     root.GenZshCompletion,
				"netnice.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
			} {
				var text bytes.Buffer
				if err := write(&text); err != nil {
					return fmt.Errorf("generate %s: %w", name, err)
				}
				if err := os.WriteFile(filepath.Join(args[0], name), text.Bytes(), 0o644); err != nil {
					return fmt.Errorf("write completions: %w", err)
				}
			}
			return nil
		},
	})
	return cmd
}
