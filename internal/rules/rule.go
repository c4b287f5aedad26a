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
	"regexp"
	"slices"
	"strings"
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
	Weight           uint32 // 0 = not said
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

	programs []program
	commands []command
	users    []uint32
	cgroups  []string
	units    []string
	parents  []program
	window   window
	said     []string // the conditions as they were written, for people and for Key
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

// command is a pattern for a whole command line, words with a space between.
type command struct {
	pieces []string       // between the stars
	slow   *regexp.Regexp // where there are question marks
}

func newCommand(text string) (command, error) {
	pieces := strings.Split(text, "*")
	if !strings.Contains(text, "?") {
		return command{pieces: pieces}, nil
	}
	for i, piece := range pieces {
		pieces[i] = strings.ReplaceAll(regexp.QuoteMeta(piece), `\?`, ".")
	}
	re, err := regexp.Compile(`(?s)\A` + strings.Join(pieces, ".*") + `\z`)
	if err != nil {
		return command{}, fmt.Errorf("the pattern %.40q is too long or no text", text)
	}
	return command{slow: re}, nil
}

func (c command) matches(line string) bool {
	if c.slow != nil {
		return c.slow.MatchString(line)
	}
	last := len(c.pieces) - 1
	if last == 0 {
		return line == c.pieces[0]
	}
	line, ok := strings.CutPrefix(line, c.pieces[0])
	for _, piece := range c.pieces[1:last] {
		if !ok {
			return false
		}
		_, line, ok = strings.Cut(line, piece)
	}
	return ok && strings.HasSuffix(line, c.pieces[last])
}
