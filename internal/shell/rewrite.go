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
	s := splitter{line: line, d: d}
	for i := 0; i < len(line); i++ {
		if i = s.read(i); i < 0 {
			return nil, false
		}
	}
	s.endCommand(len(line))
	return s.commands, true
}

// splitter reads a line from its begin to its end.
type splitter struct {
	line           string
	d              Dialect
	commands       [][]word
	words          []word     // of the present command
	now            word       // the present word, if inside
	inside         bool       // a word has begun
	redirects      bool       // the present or next word is the target of a redirection
	documents      []document // here-documents that begin after this line
	startsDocument bool       // the present or next word is the end of the last document
}

// read reads what begins at index i. It returns the index of the last byte of that, -1 if that does not end.
func (s *splitter) read(i int) int {
	if !s.inside && strings.HasPrefix(s.line[i:], joined) && s.d != Fish {
		return i + len(joined) - 1
	}
	c := s.line[i]
	if !s.inside && s.d.beginsWord(c) {
		s.beginWord(i)
	}
	switch {
	case c == '\\':
		s.now.quoted = true
		return i + 1
	case s.d.isQuote(c):
		s.now.quoted = true
		return quoteEnd(s.line, i, c, s.d)
	case s.isSubstitution(i):
		return s.readSubstitution(i)
	case c == ' ' || c == '\t':
		s.endWord(i)
	case c == '<' || c == '>':
		return s.readRedirection(i)
	case s.isRedirectionOfBoth(i):
		s.redirects = true
		return i + 1
	case s.d.separatesCommands(c):
		s.endCommand(i)
		return s.skipDocuments(i)
	case c == '#' && !s.inside:
		return s.commentEnd(i)
	}
	return i
}

// next returns the byte after index i, 0 at the end of the line.
func (s *splitter) next(i int) byte {
	if i+1 < len(s.line) {
		return s.line[i+1]
	}
	return 0
}

func (s *splitter) beginWord(at int) { s.inside, s.now = true, word{begin: at} }

func (s *splitter) endWord(at int) {
	if s.inside {
		s.now.end, s.now.redirects = at, s.redirects
		s.words = append(s.words, s.now)
		if s.startsDocument {
			s.documents[len(s.documents)-1].end = unquoted(s.line[s.now.begin:at])
		}
		s.redirects, s.startsDocument = false, false
	}
	s.inside = false
}

func (s *splitter) endCommand(at int) {
	s.endWord(at)
	s.redirects, s.startsDocument = false, false // also without the word that they need, which the shell tells
	if len(s.words) > 0 {
		s.commands = append(s.commands, s.words)
	}
	s.words = nil
}

// isSubstitution reports whether a substitution begins at index i: $(...), <(...), >(...), =(...), and (...) of fish
// within a word.
func (s *splitter) isSubstitution(i int) bool {
	switch s.line[i] {
	case '(':
		return s.d == Fish && s.inside
	case '$':
		return s.next(i) == '('
	case '<', '>', '=':
		return s.next(i) == '(' && s.d != Fish
	}
	return false
}

// readSubstitution reads a substitution, which is a part of a word, like read.
func (s *splitter) readSubstitution(i int) int {
	if !s.inside {
		s.beginWord(i)
	}
	s.now.quoted = true
	if s.line[i] != '(' {
		i++
	}
	return bracketEnd(s.line, i, s.d)
}

// readRedirection reads the signs of a redirection, like read.
func (s *splitter) readRedirection(i int) int {
	if s.inside && isNumber(s.line[s.now.begin:i]) {
		s.inside = false // the number of a descriptor is part of the redirection
	}
	s.endWord(i)
	if strings.HasPrefix(s.line[i:], "<<") && !strings.HasPrefix(s.line[i:], "<<<") && s.d != Fish {
		s.startsDocument = true
		tabs := strings.HasPrefix(s.line[i:], "<<-")
		s.documents = append(s.documents, document{tabs: tabs})
		if i++; tabs {
			i++
		}
	}
	for i+1 < len(s.line) && strings.ContainsRune("<>&|?", rune(s.line[i+1])) {
		i++
	}
	s.redirects = true
	return i
}

// isRedirectionOfBoth reports whether a redirection of standard output and standard error begins at index i.
func (s *splitter) isRedirectionOfBoth(i int) bool {
	return s.line[i] == '&' && s.next(i) == '>' && !s.inside
}

// beginsWord reports whether a sign outside a word begins one.
func (d Dialect) beginsWord(c byte) bool {
	return !strings.ContainsRune(" \t\n;&|()<>#", rune(c)) || c == '(' && d == Fish
}

// isQuote reports whether a sign begins a quotation.
func (d Dialect) isQuote(c byte) bool { return c == '\'' || c == '"' || c == '`' && d != Fish }

// separatesCommands reports whether a sign stands between commands.
func (d Dialect) separatesCommands(c byte) bool {
	return strings.ContainsRune("\n;&|", rune(c)) || (c == '(' || c == ')') && d != Fish
}

// skipDocuments returns the index of the last byte of the here-documents that begin after index i: they follow a newline.
func (s *splitter) skipDocuments(i int) int {
	if s.line[i] != '\n' {
		return i
	}
	i = documentsEnd(s.line, i, s.documents)
	s.documents = nil
	return i
}

// commentEnd returns the index of the last byte of the comment that begins at index i.
func (s *splitter) commentEnd(i int) int {
	for i+1 < len(s.line) && s.line[i+1] != '\n' {
		i++
	}
	return i
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
