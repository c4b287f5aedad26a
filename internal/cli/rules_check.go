package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

func (a *App) rulesCheck() *cobra.Command {
	var asJSON, own bool
	cmd := &cobra.Command{
		Use:   "check [FILE|FOLDER]",
		Short: "Check files of rules, without a daemon",
		Long: `Read rules and say with file, line and column what is wrong; exit code 1 if
anything is, 3 if there is no such FILE. Without one: for root what is below
/etc/netnice, for others their own file, ~/.config/netnice/netnice.toml.`,
		Args: between(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			answer, code := a.checkRules(args, own), exitFailed
			if isMissing(args) {
				code = exitNoSubject
			}
			if asJSON {
				if err := writeJSON(a.Out, answer); err != nil {
					return err
				}
			}
			if len(answer.Problems) > 0 {
				if asJSON {
					return &failure{code: code}
				}
				return &failure{message: a.problems(answer.Problems).Error(), code: code}
			}
			if !asJSON {
				a.ruleNotes(answer.Warnings)
				fmt.Fprintf(a.Out, "%s in %s: no problem\n", count(answer.Rules, "rule"), count(len(answer.Files), "file"))
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&own, "own", false, "check as a user's own file")
	return cmd
}

// isMissing reports whether an argument names a file or folder that does not exist.
func isMissing(args []string) bool {
	if len(args) == 0 {
		return false
	}
	_, err := os.Stat(args[0])
	return errors.Is(err, fs.ErrNotExist)
}

// lookUpUser finds a user's id by name or number.
func lookUpUser(name string) (uint32, error) {
	return account.Machine().UID(context.Background(), name)
}

// checkRules reads the files and folders that the arguments name.
func (a *App) checkRules(args []string, own bool) *api.RuleCheck {
	answer := &api.RuleCheck{Version: api.Version, Files: []string{}, Problems: []api.RuleProblem{}}
	take := func(list []*rules.Rule, err error) {
		answer.Rules += len(list)
		for _, r := range list {
			answer.Warnings = append(answer.Warnings, problemList(r.Notes)...)
		}
		answer.Warnings = append(answer.Warnings, problemList(rules.WeightNotes(list, func() string { return identity.DefaultDevice("") }))...)
		answer.Problems = append(answer.Problems, ruleProblems(err)...)
	}
	switch {
	case len(args) == 0 && a.System.EUID() != 0:
		home, err := os.UserHomeDir()
		if err != nil {
			take(nil, err)
			break
		}
		path := filepath.Join(home, rules.OfUser)
		if _, err := os.Lstat(path); err == nil {
			answer.Files = append(answer.Files, path)
		}
		take(rules.LoadUser(home, uint32(a.System.EUID())))
	case len(args) == 0:
		answer.Files = append(answer.Files, systemFiles(a.RulesDir)...)
		take(rules.LoadSystem(a.RulesDir, 0, lookUpUser))
	default:
		path := args[0]
		info, err := os.Stat(path)
		switch {
		case err != nil:
			answer.Files = append(answer.Files, path)
			take(nil, err)
		case info.IsDir():
			answer.Files = append(answer.Files, systemFiles(path)...)
			take(rules.LoadSystem(path, 0, lookUpUser))
		default:
			answer.Files = append(answer.Files, path)
			text, err := os.ReadFile(path)
			if err != nil {
				take(nil, err)
				break
			}
			take(rules.Parse(path, text, rules.Context{OfUser: own, LookupUser: lookUpUser}))
		}
	}
	return answer
}

func systemFiles(dir string) []string {
	files, err := rules.SystemFiles(dir)
	if err != nil {
		return nil // the function that loads the files reports this error
	}
	return files
}

func ruleProblems(err error) []api.RuleProblem {
	if err == nil {
		return nil
	}
	var list rules.Problems
	if !errors.As(err, &list) {
		return []api.RuleProblem{{Message: err.Error(), Remedy: "netnice rules check --help"}}
	}
	return problemList(list)
}

// problemList converts problems in files of rules to those of the API.
func problemList(list rules.Problems) []api.RuleProblem {
	out := make([]api.RuleProblem, len(list))
	for i, p := range list {
		out[i] = api.RuleProblem{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message, Remedy: p.Remedy}
	}
	return out
}

// ruleNotes prints notes on effects that the author of a rule may not expect.
func (a *App) ruleNotes(list []api.RuleProblem) {
	for _, p := range list {
		fmt.Fprintf(a.Err, "%snote: %s\n", problemPlace(p), printable(p.Message))
		if p.Remedy != "" {
			fmt.Fprintf(a.Err, "  %s\n", printable(p.Remedy))
		}
	}
}

// problems prints each problem as a paragraph, and returns the exit code.
func (a *App) problems(list []api.RuleProblem) error {
	for _, p := range list {
		fmt.Fprintf(a.Err, "%s%s\n", problemPlace(p), printable(p.Message))
		if p.Remedy != "" {
			fmt.Fprintf(a.Err, "  %s\n", printable(p.Remedy))
		}
	}
	return &failure{message: count(len(list), "problem"), code: exitFailed}
}

func problemPlace(p api.RuleProblem) string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return printable(p.File) + ": "
	}
	return fmt.Sprintf("%s:%d:%d: ", printable(p.File), p.Line, p.Column)
}
