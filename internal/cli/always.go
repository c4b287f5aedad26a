package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// alwaysExample is the remedy where --always is not understood.
const alwaysExample = "such as netnice name:curl 1MB/s --always; other rules are written by hand: netnice rules --help"

func alwaysFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "always", false, "of name:PROGRAM: also each process to come, by a rule that is added to the caller's")
}

// alwaysTotal is `netnice name:PROGRAM RATE --always`.
func (a *App) alwaysTotal(ctx context.Context, args []string, dryRun, asJSON bool) error {
	if len(args) != 2 {
		return fail(alwaysExample, "--always needs a program and a rate")
	}
	s, err := parseSubject(args[0])
	if err != nil {
		return err
	}
	rate, err := units.ParseRate(args[1])
	switch {
	case err != nil:
		return err
	case rate == 0:
		return fail("netnice rules list shows where rules are", "--always adds a rule, and %s is no limit", args[1])
	}
	a.warn(rateNotes(args[1], true))
	return a.addRule(ctx, []api.Subject{s}, rules.Draft{Total: args[1]}, dryRun, asJSON)
}

// alwaysSet is `netnice set name:PROGRAM LIMITS --always`.
func (a *App) alwaysSet(cmd *cobra.Command, args []string, subject *subjectFlags, wish *wishFlags, dryRun, asJSON bool) error {
	for _, name := range []string{"burst", "dscp", "loopback", "input-meter", "persist", "to", "to-file", "except", "protocol", "each-peer"} {
		if cmd.Flags().Changed(name) {
			return fail("man netnice.toml has what a rule may say", "--%s is nothing that --always adds to a rule", name)
		}
	}
	named, err := subject.named(args)
	if err != nil {
		return err
	}
	w, err := wish.wish(alwaysExample)
	if err != nil {
		return err
	}
	draft := rules.Draft{Up: wish.up.text, Down: wish.down.text, Total: wish.total.text, Min: wish.min.text, MinDown: wish.minDown.text}
	if w.Weight != nil {
		draft.Weight = *w.Weight
	}
	return a.addRule(cmd.Context(), named, draft, dryRun, asJSON)
}

// addRule adds a rule for a program to the caller's rules, and has the daemon read them.
func (a *App) addRule(ctx context.Context, named []api.Subject, draft rules.Draft, dryRun, asJSON bool) error {
	if len(named) != 1 || named[0].Kind != kindName {
		return fail(alwaysExample, "--always is for the processes that run a program: name:PROGRAM")
	}
	draft.Program = named[0].ID
	if _, err := rules.MatchProgram(draft.Program); err != nil {
		return fail("such as name:curl, name:/usr/bin/curl or 'name:python3*'", "%s: %v", named[0], err)
	}
	if dryRun && asJSON {
		return fail("netnice name:curl 1MB/s --always --dry-run", "--dry-run prints the rule that --always would add, as it would stand in the file: it is no JSON")
	}
	if len(draft.Program) <= mostRuleName && !strings.ContainsFunc(draft.Program, func(c rune) bool { return !unicode.IsPrint(c) }) {
		draft.Name = draft.Program
	}
	if err := a.rulesFollowed(ctx); err != nil {
		return err
	}
	addition, err := a.withRule(draft)
	switch {
	case err != nil:
		return a.notAdded(err)
	case dryRun:
		fmt.Fprintf(a.Out, "would be added to %s:\n%s", printable(addition.Path), addition.Rule)
		a.warn(addition.Notes)
		return nil
	}
	if addition, err = a.writeRule(draft, filepath.Dir(addition.Path)); err != nil {
		return err
	}
	return a.reloadAdded(ctx, named[0], addition, asJSON)
}

// writeRule adds a rule to the caller's file in a folder. It reads the caller's rules under the lock of the folder,
// because another command may have added a rule since they were read last.
func (a *App) writeRule(draft rules.Draft, folder string) (*rules.Addition, error) {
	unlock, err := rules.LockFolder(folder)
	if errors.Is(err, rules.ErrLocked) {
		return nil, failWith(exitFailed, "run the command again", "another command adds a rule in %s; none was added", folder)
	}
	if err != nil {
		return nil, notWritten(err)
	}
	defer unlock()
	addition, err := a.withRule(draft)
	if err != nil {
		return nil, a.notAdded(err)
	}
	return addition, notWritten(addition.Write())
}

// mostRuleName bounds the name of a rule, in bytes.
const mostRuleName = 64

// rulesFollowed returns an error if the daemon follows no rules: an added rule would hold for no process.
func (a *App) rulesFollowed(ctx context.Context) error {
	var list *api.RuleList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.Rules(ctx)
		return err
	})
	if err == nil && !list.Followed {
		return failWith(exitFailed, "sudo netnice up", "this daemon was started on demand and follows no rules; none was added")
	}
	return err
}

// withRule returns the caller's file with the rule. Root has a file in conf.d for each rule, a user has one file.
func (a *App) withRule(draft rules.Draft) (*rules.Addition, error) {
	owner := uint32(os.Geteuid()) // the daemon that reads the file expects this owner
	if a.System.EUID() == 0 {
		return draft.AddToSystem(a.RulesDir, owner, lookUpUser)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	return draft.AddToUser(home, owner)
}

// notAdded returns the error for a rule that was not added. It prints mistakes in files; a mistake in the new rule is
// in no file.
func (a *App) notAdded(err error) error {
	var mistake *rules.DraftError
	if errors.As(err, &mistake) {
		if mistake.Denied {
			return failWith(exitDenied, "root may add such a rule: the same command with sudo", "%s", mistake.Message)
		}
		return fail(alwaysExample, "%s", mistake.Message)
	}
	var mistakes rules.Problems
	if !errors.As(err, &mistakes) {
		return err
	}
	_ = a.problems(problemList(mistakes))
	return failWith(exitFailed, "netnice rules check finds mistakes in files", "no rule was added")
}

// notWritten names the remedy for a file of rules that could not be written.
func notWritten(err error) error {
	var failed *rules.WriteError
	if !errors.As(err, &failed) {
		return err
	}
	folder := failed.Folder
	for !isFolder(folder) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
	}
	word := shell.Word(folder)
	if errors.Is(err, fs.ErrPermission) {
		return &failure{message: err.Error() + "; none was added", hint: "ls -la " + word, code: exitDenied, cause: err}
	}
	hint := fmt.Sprintf("df -h %[1]s shows whether there is room; findmnt -T %[1]s whether it may be written to", word)
	return &failure{message: err.Error() + "; none was added", hint: hint, cause: err}
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// reloadAdded makes the daemon read a rule that was written. It prints the number of processes under the rule, the file
// of the rule, and the commands that undo it.
func (a *App) reloadAdded(ctx context.Context, pattern api.Subject, added *rules.Addition, asJSON bool) error {
	sudo := ""
	if a.System.EUID() == 0 {
		sudo = "sudo "
	}
	undo := fmt.Sprintf("remove the rule in line %d there; netnice rules reload", added.Line)
	if added.New {
		undo = fmt.Sprintf("%[1]srm %[2]s; %[1]snetnice rules reload", sudo, shell.Word(added.Path))
	}
	var list *api.RuleList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		list, err = c.ReloadRules(ctx)
		return err
	})
	if err != nil {
		message, _, code := explain(err)
		return &failure{message: fmt.Sprintf("a rule was added in %s, and the daemon did not read it: %s", added.Path, message), hint: "netnice rules reload\nundo: " + undo, code: code, cause: err}
	}
	i := slices.IndexFunc(list.Rules, func(r api.Rule) bool { return r.File == added.Path && r.Line == added.Line })
	if i < 0 {
		_ = a.problems(list.Problems)
		return failWith(exitFailed, "netnice rules list shows what is; a daemon may have another folder (--config-dir)\nundo: "+undo,
			"a rule was added in %s, and is not in force", added.Path)
	}
	rule := &list.Rules[i]
	if asJSON {
		return a.printAddedJSON(ctx, pattern, rule.RuleOrigin)
	}
	fmt.Fprintf(a.Out, "%s: always %s, each by itself, on %s now\n", printable(pattern.String()), a.ruleText(rule), count(rule.Nodes, "process"))
	fmt.Fprintf(a.Out, "  in %s\n  undo: %s\n", printable(added.Path), printable(undo))
	a.warn(slices.Concat(added.Notes, a.otherwiseRuled(pattern, rule)))
	return nil
}

// printAddedJSON prints a rule that was added as the same command without --always prints its outcome: with an answer
// for each node on which a limit of the rule stands.
func (a *App) printAddedJSON(ctx context.Context, pattern api.Subject, rule api.RuleOrigin) error {
	var nodes *api.NodeList
	err := a.read(ctx, func(ctx context.Context, c *client.Client) (err error) {
		nodes, err = c.Nodes(ctx)
		return err
	})
	if err != nil {
		return err
	}
	printed := &api.SetList{Version: api.Version, Pattern: pattern.String(), Answers: []api.SetResponse{}, Rule: &rule}
	for i := range nodes.Nodes {
		n := &nodes.Nodes[i]
		if slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Rule != nil && *l.Rule == rule }) {
			printed.Answers = append(printed.Answers, api.SetResponse{Version: api.Version, Node: n, Changed: true})
		}
	}
	return writeJSON(a.Out, printed)
}

// otherwiseRuled notes that a rule does not hold for all processes that run its program. The rules of a user are for
// this user's processes alone, also those of a member of the administrators' group.
func (a *App) otherwiseRuled(pattern api.Subject, rule *api.Rule) []string {
	uid := a.System.EUID()
	s, err := a.processesNamedFor(caller{uid: uid, admin: uid == 0}, pattern)
	if err != nil || rule.Nodes >= len(s.subjects) {
		return nil // no process runs the program, or the rule holds for all
	}
	return []string{fmt.Sprintf("%s run it now, and a rule before this one may hold for some: netnice rules test PID", count(len(s.subjects), "process"))}
}
