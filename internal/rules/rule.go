// Package rules reads rules from TOML files and finds those that match a
// process. A rule limits processes without a command for each. The package owns the files'
// syntax, their checks and the matching. It looks at no process, sets no limit
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

// Share says how matching processes share a rule's limit.
type Share string

// With ShareEach each matching process has, with its children, a limit of its own. With ShareAll all matching
// processes have one limit together.
const (
	ShareEach Share = "each"
	ShareAll  Share = "all"
)

// Limits holds the limits that a rule sets. A nil rate is not set; 0 means no limit.
type Limits struct {
	UpBytesPerSec    *uint64
	DownBytesPerSec  *uint64
	TotalBytesPerSec *uint64
	MinBytesPerSec   uint64 // guarantee within every enclosing limit; 0 = not set
	Weight           uint32 // 0 = not set
	// MinDownBytesPerSec is the same guarantee for received traffic.
	MinDownBytesPerSec uint64
	// AdaptSharePPM is the part of a path's capacity that a rule with adapt keeps beside other traffic, in parts of
	// a million. It is 0 for rules that do not adapt.
	AdaptSharePPM uint32
}

// Rule is one [[rule]] of a file. Conditions of different kinds must all hold.
// A condition with several values holds if one value matches.
type Rule struct {
	Name   string // "line 12" for a rule without
	File   string
	Line   int
	Share  Share
	Also   bool
	Limits Limits
	// Notes name effects that the author may not expect. The rule is in force all the same.
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

// Where returns a rule's file and line, for people.
func (r *Rule) Where() string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

// Conditions returns the conditions that a process must fulfil to match, as text.
func (r *Rule) Conditions() []string { return slices.Clone(r.said) }

// Key identifies a rule across a reload by its file, name and conditions. A change of
// limits does not change the key.
func (r *Rule) Key() string {
	name := r.Name
	if name == lineName(r.Line) {
		name = "" // lines move
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{r.File, name, string(r.Share)}, r.said...), "\x00")))
	return hex.EncodeToString(sum[:12])
}

// Origin names the rule that a limit comes from. It is part of state files.
type Origin struct {
	Name string `json:"name,omitempty"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"` // see Rule.Key
	// OwnName says that a rule for a destination matches by a cgroup or a unit that the process's user may have
	// named.
	OwnName bool `json:"own_name,omitempty"` // since version 11 of the file of limits
}

// Origin returns the rule as the origin of a limit. OwnName is left to the caller.
func (r *Rule) Origin() Origin {
	return Origin{Name: r.Name, File: r.File, Line: r.Line, Key: r.Key()}
}

// IsIn reports whether a list has an origin of the same rule.
func (o Origin) IsIn(list []Origin) bool {
	return slices.ContainsFunc(list, func(other Origin) bool { return other.Key == o.Key })
}

// IsInByOwnName reports whether that origin says that the rule matches by a name that the process's user may have
// chosen.
func (o Origin) IsInByOwnName(list []Origin) bool {
	return slices.ContainsFunc(list, func(other Origin) bool { return other.OwnName && other.Key == o.Key })
}

func (o Origin) String() string { return fmt.Sprintf("rule %q (%s:%d)", o.Name, o.File, o.Line) }

func lineName(line int) string { return fmt.Sprintf("line %d", line) }

// program is a pattern for a program: a path if it has a slash, else a name.
type program struct {
	text   string
	path   bool
	glob   bool
	prefix string // the part of text before its first special character
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
		return p, fmt.Errorf("the pattern %q is not complete: \\[ stands for the character itself", text)
	}
	return p, nil
}

// MatchProgram returns a test for the programs that text names. Text has the form of a rule's key program: a name, a
// path, or a pattern.
func MatchProgram(text string) (func(Program) bool, error) {
	p, err := newProgram(text)
	if err != nil {
		return nil, err
	}
	return p.matches, nil
}

// matches compares the pattern with the file that a process runs, and with the kernel's name for the process. The
// kernel uses the script's own name, or the name of the link to a program with many names.
func (p program) matches(is Program) bool {
	switch {
	case p.path && p.glob:
		if !strings.HasPrefix(is.Path, p.prefix) {
			return false // the prefix alone decides most comparisons
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

// command is a pattern for a whole command line, words with a space between. The product of both lengths always bounds
// the time of a match, because the pattern may be a user's, and the daemon compares it.
type command struct {
	pieces []string // the texts between the stars
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

// cutPiece cuts a piece of a pattern off the beginning of a text. A text that does not begin with the piece is
// returned unchanged.
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

// width returns the length in bytes of the first character of a text that is not empty.
func width(text string) int {
	_, n := utf8.DecodeRuneInString(text)
	return n
}
