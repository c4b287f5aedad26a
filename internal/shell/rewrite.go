// Package shell lets interactive shells understand a command whose last word is a rate,
// as in "ftp ftp.foo.com @128Kbyte/sec". It rewrites a line before the shell runs it, and
// has what the shells are told for that. It quotes words of commands that are printed for people. It runs nothing itself.
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

// function is what a rewritten command begins with: the shells' snippets define it.
const function = "netnice_at"

// joined is between two lines that are read as one.
const joined = "\\\n"

// word is a part of a line without blanks.
type word struct {
	begin, end int
	quoted     bool // some of it is
	redirects  bool // or is where a redirection goes
}

// Rewrite returns the line with every command that ends with an unquoted @RATE begun by a
// function that runs it under that limit; a line of @RATE alone limits the shell. What
// is no rate is left alone, and so is a line that it cannot read to its end. A last word
// that looks like a rate but is none is an error, a [units.ParseError]: the command would
// run without a limit.
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
			continue // a limit, of nothing
		}
		out.WriteString(line[done:words[first].begin])
		out.WriteString(begin(rate, d))
		out.WriteString(strings.TrimRight(line[words[first].begin:at.begin], " \t"+joined))
		done = at.end
	}
	out.WriteString(line[done:])
	return out.String(), nil
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

// meantAsRate matches what is written for a rate, be it a rate or not: @10, @10mbps, @1,5MB/s.
var meantAsRate = regexp.MustCompile(`^[0-9]+([.,][0-9]+)?[A-Za-z]*(/s[a-z]*)?$`)

// timeOfDay matches what date -d and touch -d take for a time: seconds since 1970.
var timeOfDay = regexp.MustCompile(`^[0-9]{9,}([.,][0-9]+)?$`)

// rateOf reads @RATE; false if the word is another.
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

// split finds the words of each simple command; false where a quote or a bracket does not
// end.
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
		redirects = false
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
				inside = false // a descriptor
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

// document is a here-document: text up to a line that is its end.
type document struct {
	end  string
	tabs bool // may stand before the end
}

// documentsEnd is the last byte of the documents that begin after the newline at i.
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
