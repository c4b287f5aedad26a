// Package shell lets interactive shells understand a command whose last word is a rate, as in
// "ftp ftp.foo.com @128Kbyte/sec". It rewrites a line before the shell runs it, and has the snippets that make a shell
// ask for that. It quotes words of commands that are printed for people. It runs nothing itself.
package shell

import (
	"regexp"
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

// function is the function with which a rewritten command begins. The shells' snippets define it.
const function = "netnice_at"

// joined separates two lines that a shell reads as one.
const joined = "\\\n"

// word is a part of a line without blanks.
type word struct {
	begin, end int
	quoted     bool // a part of the word is quoted
	redirects  bool // the word is the target of a redirection
}

// Rewrite returns the line with a function before every command that ends with an unquoted @RATE. The function runs the
// command under that limit. A line of @RATE alone limits the shell. Rewrite leaves other last words as they are, and
// also a line that it cannot read to its end. A last word that looks like a rate but is none is a [units.ParseError],
// because the command would run without a limit.
func Rewrite(line string, d Dialect) (string, error) {
	if !strings.Contains(line, "@") {
		return line, nil
	}
	commands, ok := split(line, d)
	if !ok {
		return line, nil
	}
	var out strings.Builder
	done := 0
	for _, words := range commands {
		first, last := bounds(line, words, d)
		if last < 0 {
			continue
		}
		at := words[last]
		rate, ok, err := rateOf(line, at)
		switch {
		case err != nil:
			return "", err
		case !ok:
			continue
		case first == last && len(commands) == 1 && len(words) == 1:
			return line[:at.begin] + ownLimit(d) + quoted(rate) + line[at.end:], nil
		case first == last:
			continue // a limit without a command
		}
		out.WriteString(line[done:words[first].begin])
		out.WriteString(begin(rate, d))
		out.WriteString(strings.TrimRight(line[words[first].begin:at.begin], " \t"+joined))
		done = at.end
	}
	out.WriteString(line[done:])
	return out.String(), nil
}

// quoted returns a rate in quotes for a shell. A rate has no quotes itself (rateOf).
func quoted(rate string) string { return "'" + rate + "'" }

func begin(rate string, d Dialect) string {
	if d == Fish {
		return function + " " + quoted(rate) + " "
	}
	// The rate comes first, because shells expand the word after an alias, too, and the command's name may be an alias.
	return "NETNICE_AT=" + quoted(rate) + " " + function + " "
}

func ownLimit(d Dialect) string {
	if d == Fish {
		return "command netnice $fish_pid "
	}
	return "command netnice $$ "
}

// bounds returns the indices of a command's name and of its last word; -1 if there is none.
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

// leads reports whether a word comes before a command's name, as reserved words and assignments do.
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

// meantAsRate matches words that are meant as a rate, also those that are none: @10, @10mbps, @1,5MB/s.
var meantAsRate = regexp.MustCompile(`^[0-9]+([.,][0-9]+)?[A-Za-z]*(/s[a-z]*)?$`)

// timeOfDay matches a time for date -d and touch -d: seconds since 1970.
var timeOfDay = regexp.MustCompile(`^[0-9]{9,}([.,][0-9]+)?$`)

// rateOf reads @RATE. It returns false for any other word.
func rateOf(line string, w word) (rate string, ok bool, err error) {
	text := line[w.begin:w.end]
	if w.quoted || !strings.HasPrefix(text, "@") {
		return "", false, nil
	}
	rate = text[1:]
	_, err = units.ParseRate(rate)
	switch {
	case err == nil:
		return rate, !strings.ContainsAny(rate, "'\\$`\""), nil
	case meantAsRate.MatchString(rate) && !timeOfDay.MatchString(rate):
		return "", false, err
	}
	return "", false, nil
}

// split finds the words of each simple command. It returns false if a quote or a bracket does not end.
func split(line string, d Dialect) (commands [][]word, ok bool) {
	var words []word
	var now word
	inside, redirects := false, false
	var documents []document // here-documents that begin after this line
	startsDocument := false
	endWord := func(at int) {
		if inside {
			now.end, now.redirects = at, redirects
			words = append(words, now)
			if startsDocument {
				documents[len(documents)-1].end = unquoted(line[now.begin:at])
			}
			redirects, startsDocument = false, false
		}
		inside = false
	}
	endCommand := func(at int) {
		endWord(at)
		redirects, startsDocument = false, false // also without the word that they need, which the shell tells
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		if !inside && strings.HasPrefix(line[i:], joined) && d != Fish {
			i += len(joined) - 1
			continue
		}
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
			if inside && isNumber(line[now.begin:i]) {
				inside = false // the number of a descriptor is part of the redirection
			}
			endWord(i)
			if strings.HasPrefix(line[i:], "<<") && !strings.HasPrefix(line[i:], "<<<") && d != Fish {
				startsDocument = true
				tabs := strings.HasPrefix(line[i:], "<<-")
				documents = append(documents, document{tabs: tabs})
				if i++; tabs {
					i++
				}
			}
			for i+1 < len(line) && strings.ContainsRune("<>&|?", rune(line[i+1])) {
				i++
			}
			redirects = true
		case c == '&' && i+1 < len(line) && line[i+1] == '>' && !inside:
			i++
			redirects = true
		case strings.ContainsRune("\n;&|", rune(c)), (c == '(' || c == ')') && d != Fish:
			endCommand(i)
			if c == '\n' {
				i = documentsEnd(line, i, documents)
				documents = nil
			}
		case c == '#' && !inside:
			for i+1 < len(line) && line[i+1] != '\n' {
				i++
			}
		}
	}
	endCommand(len(line))
	return commands, true
}

// document is a here-document: text up to a line that is equal to its end.
type document struct {
	end  string
	tabs bool // tabs may stand before the end
}

// documentsEnd returns the index of the last byte of the documents that begin after the newline at i.
func documentsEnd(line string, i int, documents []document) int {
	for _, doc := range documents {
		for i+1 < len(line) {
			text, _, _ := strings.Cut(line[i+1:], "\n")
			i += 1 + len(text)
			if doc.tabs {
				text = strings.TrimLeft(text, "\t")
			}
			if text == doc.end {
				break
			}
		}
	}
	return min(i, len(line)-1)
}

func unquoted(text string) string {
	return strings.NewReplacer(`'`, "", `"`, "", `\`, "").Replace(text)
}

func isNumber(text string) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != ""
}

// quoteEnd returns the index at which the quote that begins at i ends, -1 if it does not end.
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

// bracketEnd returns the index at which the round bracket at i ends, -1 if it does not end.
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
