// Package shell lets interactive shells understand a command whose last word is a rate,
// as in "ftp ftp.foo.com @128Kbyte/sec". It rewrites a line before the shell runs it, and
// has what the shells are told for that. It runs nothing itself.
package shell

import (
	"strings"

	"github.com/netnice/netnice/internal/units"
)

// Dialect is a shell's syntax.
type Dialect int

// The shells.
const (
	Bash Dialect = iota
	Zsh
	Fish
)

// function is what a rewritten command begins with: the shells' snippets define it.
const function = "netnice_at"

// word is a part of a line without blanks.
type word struct {
	begin, end int
	quoted     bool // some of it is
	redirects  bool // or is where a redirection goes
}

// Rewrite returns the line with every command that ends with an unquoted @RATE begun by a
// function that runs it under that limit; a line of @RATE alone limits the shell. What
// is no rate is left alone, and so is a line that it cannot read to its end.
func Rewrite(line string, d Dialect) string {
	if !strings.Contains(line, "@") {
		return line
	}
	commands, ok := split(line, d)
	if !ok {
		return line
	}
	var out strings.Builder
	done := 0
	for _, words := range commands {
		first, last := bounds(line, words, d)
		if last < 0 {
			continue
		}
		at := words[last]
		rate, ok := rateOf(line, at)
		switch {
		case !ok:
			continue
		case first == last && len(commands) == 1 && len(words) == 1:
			return line[:at.begin] + ownLimit(d) + quoted(rate) + line[at.end:]
		case first == last:
			continue // a limit, of nothing
		}
		out.WriteString(line[done:words[first].begin])
		out.WriteString(begin(rate, d))
		out.WriteString(strings.TrimRight(line[words[first].begin:at.begin], " \t"))
		done = at.end
	}
	out.WriteString(line[done:])
	return out.String()
}

// quoted is a rate for a shell: it has no quotes itself.
func quoted(rate string) string { return "'" + rate + "'" }

func begin(rate string, d Dialect) string {
	if d == Fish {
		return function + " " + quoted(rate) + " "
	}
	// The rate comes first so that the word after an alias is the command's name,
	// which may be one, too.
	return "NETNICE_AT=" + quoted(rate) + " " + function + " "
}

func ownLimit(d Dialect) string {
	if d == Fish {
		return "command netnice $fish_pid "
	}
	return "command netnice $$ "
}

// bounds are the words in which a command's name and its last word stand; -1 if there
// is none.
func bounds(line string, words []word, d Dialect) (first, last int) {
	first, last = -1, -1
	for i, w := range words {
		if w.redirects {
			continue
		}
		last = i
		if first < 0 && (w.quoted || !leads(line[w.begin:w.end], d)) {
			first = i
		}
	}
	if first < 0 {
		first = last
	}
	return first, last
}

// leads says whether a command's name comes after the word still: reserved words and
// assignments.
func leads(text string, d Dialect) bool {
	switch text {
	case "if", "while", "else", "time", "!", "{", "not":
		return true
	case "then", "do", "elif", "until":
		return d != Fish
	case "and", "or", "begin":
		return d == Fish
	}
	name, _, assigns := strings.Cut(text, "=")
	if !assigns || name == "" {
		return false
	}
	for i, c := range []byte(name) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// rateOf reads @RATE.
func rateOf(line string, w word) (string, bool) {
	text := line[w.begin:w.end]
	if w.quoted || !strings.HasPrefix(text, "@") {
		return "", false
	}
	rate := text[1:]
	if _, err := units.ParseRate(rate); err != nil || strings.ContainsAny(rate, "'\\$`\"") {
		return "", false
	}
	return rate, true
}

// split finds the words of each simple command; false where a quote or a bracket does not
// end.
func split(line string, d Dialect) (commands [][]word, ok bool) {
	var words []word
	var now word
	inside, redirects := false, false
	endWord := func(at int) {
		if inside {
			now.end, now.redirects = at, redirects
			words = append(words, now)
			redirects = false
		}
		inside = false
	}
	endCommand := func(at int) {
		endWord(at)
		redirects = false
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		if !inside && !strings.ContainsRune(" \t\n;&|()<>#", rune(c)) || !inside && c == '(' && d == Fish {
			inside, now = true, word{begin: i}
		}
		switch {
		case c == '\\':
			now.quoted = true
			i++
		case c == '\'' || c == '"' || c == '`' && d != Fish:
			end := quoteEnd(line, i, c, d)
			if end < 0 {
				return nil, false
			}
			now.quoted, i = true, end
		case c == '$' && i+1 < len(line) && line[i+1] == '(' || c == '(' && d == Fish && inside,
			(c == '<' || c == '>' || c == '=') && i+1 < len(line) && line[i+1] == '(' && d != Fish:
			if !inside {
				inside, now = true, word{begin: i}
			}
			if c != '(' {
				i++
			}
			end := bracketEnd(line, i, d)
			if end < 0 {
				return nil, false
			}
			now.quoted, i = true, end
		case c == ' ' || c == '\t':
			endWord(i)
		case c == '<' || c == '>':
			if strings.HasPrefix(line[i:], "<<") && !strings.HasPrefix(line[i:], "<<<") {
				return nil, false // more lines follow
			}
			if inside && isNumber(line[now.begin:i]) {
				inside = false // a descriptor
			}
			endWord(i)
			for i+1 < len(line) && strings.ContainsRune("<>&|?", rune(line[i+1])) {
				i++
			}
			redirects = true
		case c == '&' && i+1 < len(line) && line[i+1] == '>' && !inside:
			i++
			redirects = true
		case strings.ContainsRune("\n;&|", rune(c)), (c == '(' || c == ')') && d != Fish:
			endCommand(i)
		case c == '#' && !inside:
			for i < len(line) && line[i] != '\n' {
				i++
			}
			endCommand(min(i, len(line)))
		}
	}
	endCommand(len(line))
	return commands, true
}

func isNumber(text string) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != ""
}

// quoteEnd is where the quote that begins at i ends, -1 if it does not.
func quoteEnd(line string, i int, quote byte, d Dialect) int {
	for i++; i < len(line); i++ {
		switch {
		case line[i] == quote:
			return i
		case line[i] == '\\' && (quote != '\'' || d == Fish):
			i++
		case quote == '"' && strings.HasPrefix(line[i:], "$("):
			if i = bracketEnd(line, i+1, d); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// bracketEnd is where the round bracket at i ends, -1 if it does not.
func bracketEnd(line string, i int, d Dialect) int {
	depth := 0
	for ; i < len(line); i++ {
		switch c := line[i]; c {
		case '\\':
			i++
		case '\'', '"', '`':
			if c == '`' && d == Fish {
				continue
			}
			if i = quoteEnd(line, i, c, d); i < 0 {
				return -1
			}
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
