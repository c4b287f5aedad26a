package reference

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netnice/netnice/internal/cli"
	"github.com/netnice/netnice/internal/rules"
)

// programs returns netnice and nlimit, with the values that flags have by default on any machine.
func programs() []*cobra.Command {
	app := &cli.App{
		Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" },
		LogPath: cli.DefaultLogPath, PinDir: cli.DefaultPinDir, RulesDir: rules.DefaultDir,
	}
	return app.Commands()
}

// eachCommand calls f with a command and those below it. It leaves out those that people do not call.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	if cmd.Hidden {
		return
	}
	f(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, f)
	}
}

// commandsPage returns the page of all commands.
func commandsPage(string) (string, error) {
	var list, sections strings.Builder
	var rows [][]string
	for _, program := range programs() {
		eachCommand(program, func(c *cobra.Command) {
			title := c.CommandPath()
			rows = append(rows, []string{"[" + title + "](#" + strings.ReplaceAll(title, " ", "-") + ")", prose(c.Short)})
			sections.WriteString(commandSection(c))
		})
	}
	list.WriteString("# Commands\n\nThe man page netnice(1) says more about each. `netnice COMMAND --help` prints the same text as here.\n\n")
	list.WriteString(table([]string{"command", "does"}, rows))
	list.WriteString("\nFlags of every command:\n\n" + flagTable(programs()[0].PersistentFlags()))
	return list.String() + sections.String(), nil
}

// commandSection returns the section of one command.
func commandSection(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString("\n## " + c.CommandPath() + "\n\n")
	b.WriteString(block(c.UseLine()) + "\n")
	b.WriteString(helpText(cmp.Or(c.Long, c.Short)))
	if c.LocalNonPersistentFlags().HasAvailableFlags() {
		b.WriteString("Flags:\n\n" + flagTable(c.LocalNonPersistentFlags()) + "\n")
	}
	if c.Example != "" {
		b.WriteString("Examples:\n\n" + block(unindented(strings.Split(c.Example, "\n"))) + "\n")
	}
	exits := "[those of every command](exit-codes.md)."
	if cli.RunsCommand(c) {
		exits = "those of the command that it runs, or [its own](exit-codes.md#commands-that-run-another-command)."
	}
	b.WriteString("Exit codes: " + exits + "\n")
	return b.String()
}

// flagTable returns the table of flags.
func flagTable(flags *pflag.FlagSet) string {
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := code("--" + f.Name)
		if f.Shorthand != "" {
			name = code("-"+f.Shorthand) + ", " + name
		}
		value := f.DefValue
		if slices.Contains([]string{"false", "[]", "0", "0s"}, value) {
			value = ""
		}
		rows = append(rows, []string{name, prose(kind), code(value), prose(usage)})
	})
	return table([]string{"flag", "value", "default", "means"}, rows)
}

// exitCodesPage returns the page of exit codes, from the comments on them.
func exitCodesPage(root string) (string, error) {
	c, err := readComments(filepath.Join(root, "internal/cli"))
	if err != nil {
		return "", err
	}
	own, others := [][]string{}, [][]string{}
	for _, one := range c.constants {
		switch {
		case !strings.HasPrefix(one.Name, "exit"):
		case len(one.Value) == 1:
			own = append(own, []string{one.Value, one.Comment})
		default:
			others = append(others, []string{one.Value, one.Comment})
		}
	}
	var names []string
	eachCommand(programs()[0], func(c *cobra.Command) {
		if cli.RunsCommand(c) {
			names = append(names, code(c.CommandPath()))
		}
	})
	return "# Exit codes\n\nOn failure a command prints what went wrong on standard error, then what helps.\n\n" +
		table([]string{"code", "means"}, own) +
		"\n## Commands that run another command\n\n" + strings.Join(names, " and ") +
		" end with the exit code of the command that they run. Their own codes are those of env(1):\n\n" +
		table([]string{"code", "means"}, others), nil
}
