package cli

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/identity"
)

// completionTimeout is how long a completion waits for the daemon. It is short, because a person waits for the next
// letter.
const completionTimeout = 200 * time.Millisecond

const noFiles = cobra.ShellCompDirectiveNoFileComp

// nodesWithin asks a daemon that runs for the nodes.
func (a *App) nodesWithin(ctx context.Context, most time.Duration) (*api.NodeList, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	c := client.New(a.socket)
	defer c.Close()
	return c.Nodes(ctx)
}

// completeSubjects offers subjects for a command that takes one in words.
func (a *App) completeSubjects(_ *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(words) > 0 {
		return nil, noFiles
	}
	return a.subjectWords(prefix), noFiles
}

// completeHere offers subjects and rates behind netnice itself. Before the first letter it offers nothing, so that the
// shell shows the commands alone.
func (a *App) completeHere(_ *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(words) == 1:
		return rateWords(prefix), noFiles
	case len(words) > 1 || prefix == "":
		return nil, noFiles
	}
	return a.subjectWords(prefix), noFiles
}

// completePID offers processes for the first word, or with each for every word.
func (a *App) completePID(each bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
		switch program, is := strings.CutPrefix(prefix, string(kindName)+":"); {
		case len(words) > 0 && !each:
			return nil, noFiles
		case is:
			return withKind(kindName, startingWith(a.values(kindName), program)), noFiles
		}
		return startingWith(a.values(api.KindPID), prefix), noFiles
	}
}

// completeValue offers the values of a flag for a kind of subject.
func (a *App) completeValue(kind api.Kind) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return startingWith(a.values(kind), prefix), noFiles
	}
}

// completeFirst is completeValue for the first word.
func (a *App) completeFirst(kind api.Kind) cobra.CompletionFunc {
	return func(_ *cobra.Command, words []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(words) > 0 {
			return nil, noFiles
		}
		return startingWith(a.values(kind), prefix), noFiles
	}
}

// subjectWords returns the subjects that begin with a prefix. After a digit these are processes. Else they are the
// subjects that have limits and, after a kind and a colon, all subjects of that kind.
func (a *App) subjectWords(prefix string) []string {
	if prefix != "" && strings.Trim(prefix, "0123456789") == "" {
		return startingWith(a.values(api.KindPID), prefix)
	}
	words := startingWith(a.limitedWords(), prefix)
	known := make(map[string]bool)
	for _, word := range words {
		text, _, _ := strings.Cut(word, "\t")
		known[text] = true
	}
	kind, id, is := strings.Cut(prefix, ":")
	if !is {
		return words
	}
	for _, word := range withKind(api.Kind(kind), startingWith(a.values(api.Kind(kind)), id)) {
		if text, _, _ := strings.Cut(word, "\t"); !known[text] {
			words = append(words, word)
		}
	}
	return words
}

// limitedWords returns the subjects that have limits, none if the daemon does not answer in time.
func (a *App) limitedWords() []string {
	list, err := a.nodesWithin(context.Background(), completionTimeout)
	if err != nil {
		return nil
	}
	var words []string
	for _, n := range list.Nodes {
		if n.Subject.Kind != api.KindTo || !n.IsHidden() {
			words = append(words, cobra.CompletionWithDesc(n.Subject.String(), printable(n.Name)))
		}
	}
	return words
}

// values returns the subjects of a kind that exist, as the flag of the kind takes them. It returns none to a caller who
// may not list them.
func (a *App) values(kind api.Kind) []string {
	var words []string
	switch kind {
	case api.KindPID, kindName:
		return a.processWords(kind)
	case api.KindContainer:
		list, err := a.System.Containers()
		if err != nil || len(list) == 0 {
			return nil
		}
		words = append(words, cobra.CompletionWithDesc(allContainers, "each by itself"))
		for _, c := range list {
			words = append(words, c.Subject())
		}
	case api.KindGroup:
		for _, word := range a.limitedWords() {
			if group, is := strings.CutPrefix(word, string(kind)+":"); is {
				words = append(words, group)
			}
		}
	case api.KindLink:
		names, _ := a.System.Names(kind)
		for _, name := range names {
			if !strings.HasPrefix(name, "netnice") { // netnice's own devices have such names
				words = append(words, name)
			}
		}
	default:
		words, _ = a.System.Names(kind)
	}
	return words
}

// processWords returns the processes that the caller may limit: numbers with names, or names alone.
func (a *App) processWords(kind api.Kind) []string {
	all, err := a.System.Processes()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	own, who := all[:0], a.caller(ctx)
	for _, p := range all {
		if who.owns(p.UID) && p.PID != a.System.PID() {
			own = append(own, p)
		}
	}
	if kind == kindName {
		return identity.ProgramNames(own)
	}
	words := make([]string, 0, len(own))
	for _, p := range own {
		name := p.Comm
		if p.IsCut() {
			name = path.Base(p.Path) // the kernel cuts names
		}
		words = append(words, cobra.CompletionWithDesc(strconv.Itoa(p.PID), printable(name)))
	}
	return words
}

// startingWith returns the words that begin with a prefix.
func startingWith(words []string, prefix string) []string {
	var out []string
	for _, word := range words {
		if strings.HasPrefix(word, prefix) {
			out = append(out, word)
		}
	}
	return out
}

func withKind(kind api.Kind, words []string) []string {
	for i := range words {
		words[i] = string(kind) + ":" + words[i]
	}
	return words
}

// rateWords returns a number with each unit of a rate behind it; none without a number.
func rateWords(prefix string) []string {
	number := prefix[:len(prefix)-len(strings.TrimLeft(prefix, "0123456789."))]
	if number == "" {
		return nil
	}
	var words []string
	for _, unit := range []struct{ name, means string }{
		{"kB/s", "thousand bytes a second"},
		{"MB/s", "million bytes a second"},
		{"GB/s", "thousand million bytes a second"},
		{"kbit", "thousand bits a second"},
		{"mbit", "million bits a second"},
		{"gbit", "thousand million bits a second"},
	} {
		if word := number + unit.name; strings.HasPrefix(word, prefix) {
			words = append(words, cobra.CompletionWithDesc(word, unit.means))
		}
	}
	return words
}

// completeRates makes the flags of these names complete rates.
func completeRates(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return rateWords(prefix), noFiles
		})
	}
}
