package cli

import "github.com/spf13/cobra"

func (a *App) rules() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Limits that apply themselves, from files of rules",
		Args:  between(0, 0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.rulesCheck())
	return cmd
}
