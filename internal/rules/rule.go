// Package rules reads rules from TOML files and finds those that match a
// process: who gets which limit without being asked for. It owns the files'
// syntax, their checks and the matching; it looks at no process, sets no limit
// and never talks to the kernel.
package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Share says who shares a rule's limit.
type Share string

// Each matching process has, with its children, a limit of its own, or all that
// match have one together.
const (
	ShareEach Share = "each"
	ShareAll  Share = "all"
)

// Limits is what a rule sets. A nil rate is not said, 0 is none.
type Limits struct {
	UpBytesPerSec    *uint64
	DownBytesPerSec  *uint64
	TotalBytesPerSec *uint64
	MinBytesPerSec   uint64 // of every limit around it; 0 = not said
	Weight           uint32 // 0 = not said
	// MinDownBytesPerSec is MinBytesPerSec of what is received.
	MinDownBytesPerSec uint64
	// AdaptSharePPM is the part of a path's capacity that is kept beside others, of a rule
	// by which what is sent follows the path to each host; 0 for other rules.
	AdaptSharePPM uint32
}

// Rule is one [[rule]] of a file. Conditions of different kinds must all hold;
// of several values of one kind, one is enough.
type Rule struct {
	Name   string // "line 12" for a rule without
	File   string
	Line   int
	Share  Share
	Also   bool
	Limits Limits
	// Notes are what its author may not expect of it; the rule is in force all the same.
	Notes Problems

	programs   []program
	commands   []command
	users      []uint32
	cgroups    []string
	units      []string
	containers []container
	parents    []program
	to         []reach
	ports      []ports
	protocol   Protocol
	window     window
	said       []string // the conditions as they were written, for people and for Key
}

// Where is where a rule stands, for people.
func (r *Rule) Where() string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

// Conditions are what a process must be to match, as text.
func (r *Rule) Conditions() []string { return slices.Clone(r.said) }

// Key names a rule across a reload: the same file, name and conditions. A change of
// limits leaves it as it is.
func (r *Rule) Key() string {
	name := r.Name
	if name == lineName(r.Line) {
		name = "" // lines move
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.File, name, string(r.Share)}, r.said...), "\x00")))
	return hex.EncodeToString(sum[:12])
}

func lineName(line int) string { return fmt.Sprintf("line %d", line) }

// program is a pattern for a program: a path if it has a slash, else a name.
type program struct {
	text   string
	path   bool
	glob   bool
	prefix string // of text, before its first special character
}

func newProgram(text string) (program, error) {
	p := program{text: text, path: strings.Contains(text, "/"), glob: strings.ContainsAny(text, `*?[\`)}
	p.prefix = text
	if at := strings.IndexAny(text, `*?[\`); at >= 0 {
		p.prefix = text[:at]
	}
	switch {
	case text == "":
		return p, fmt.Errorf("a program's name is empty")
	case p.path && !strings.HasPrefix(text, "/"):
		return p, fmt.Errorf("the path %q is not absolute", text)
	}
	if _, err := path.Match(text, ""); err != nil {
		return p, fmt.Errorf("the pattern %q is not complete", text)
	}
	return p, nil
}

// MatchProgram returns a test for programs that text names as a rule's key program does: a name, a path, or a pattern.
func MatchProgram(text string) (func(Program) bool, error) {
	p, err := newProgram(text)
	if err != nil {
		return nil, err
	}
	return p.matches, nil
}

// matches compares with the file that a process runs, and with the name that the
// kernel gave it: a script's own, or that of a link to a program of many names.
func (p program) matches(is Program) bool {
	switch {
	case p.path && p.glob:
		if !strings.HasPrefix(is.Path, p.prefix) {
			return false // most are told by that
		}
		ok, _ := path.Match(p.text, is.Path)
		return ok
	case p.path:
		return p.text == is.Path
	case p.glob:
		ok, _ := path.Match(p.text, path.Base(is.Path))
		if !ok {
			ok, _ = path.Match(p.text, is.Comm)
		}
		return ok
	}
	return p.text == path.Base(is.Path) || commOf(p.text) == is.Comm
}

// commOf cuts a name as the kernel does.
func commOf(name string) string {
	const most = 15
	return name[:min(len(name), most)]
}

// command is a pattern for a whole command line, words with a space between. How long
// matching takes is bounded by the product of both lengths, whatever they are: the pattern
// may be a user's, and the daemon compares it.
type command struct {
	pieces []string // between the stars
}

func newCommand(text string) (command, error) {
	if !utf8.ValidString(text) {
		return command{}, fmt.Errorf("the pattern %.40q is no text", text)
	}
	return command{strings.Split(text, "*")}, nil
}

func (c command) matches(line string) bool {
	last := len(c.pieces) - 1
	line, ok := cutPiece(line, c.pieces[0])
	if !ok || last == 0 {
		return ok && line == ""
	}
	for _, piece := range c.pieces[1:last] {
		if !strings.Contains(piece, "?") {
			if _, line, ok = strings.Cut(line, piece); !ok {
				return false
			}
			continue
		}
		for line, ok = cutPiece(line, piece); !ok; line, ok = cutPiece(line, piece) {
			if line == "" {
				return false
			}
			line = line[width(line):]
		}
	}
	end := c.pieces[last]
	for range strings.Count(line, "") - 1 - utf8.RuneCountInString(end) {
		line = line[width(line):]
	}
	rest, ok := cutPiece(line, end)
	return ok && rest == ""
}

// cutPiece cuts a piece of a pattern off the beginning of a text; without that at its
// beginning, the text is returned as it was.
func cutPiece(text, piece string) (rest string, ok bool) {
	rest = text
	for piece != "" {
		n := width(piece)
		switch {
		case rest == "":
			return text, false
		case piece[0] == '?':
			rest = rest[width(rest):]
		case strings.HasPrefix(rest, piece[:n]):
			rest = rest[n:]
		default:
			return text, false
		}
		piece = piece[n:]
	}
	return rest, true
}

// width is the length in bytes of the first character of a text that is not empty.
func width(text string) int {
	_, n := utf8.DecodeRuneInString(text)
	return n
}
