package rules

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// Addition is a file with one more rule, until Write only in memory.
type Addition struct {
	Path string
	Text []byte // the whole file
	Line int    // where the rule begins
	Rule string // its own text
	New  bool   // the file is not there yet
	// Notes name the rules of other patterns that may be for the same processes.
	Notes []string
}

// ExistsError says that there is a rule for the program already, or a file of such a rule.
type ExistsError struct {
	Program, File string
	Line          int // 0 = only the file is known
}

func (e *ExistsError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("there is a file %s, where the rule for %q would be", e.File, e.Program)
	}
	return fmt.Sprintf("there is a rule for %q: %s:%d", e.Program, e.File, e.Line)
}

// Hint returns the remedy.
func (e *ExistsError) Hint() string {
	return "change it there; netnice rules list shows which rules are in force"
}

// AddToSystem returns a new file in conf.d with only this rule. The administrator's files must have no mistake and
// no rule for the program. They must belong to owner, as the daemon requires.
func (d Draft) AddToSystem(dir string, owner uint32, lookupUser func(name string) (uint32, error)) (*Addition, error) {
	in := Context{LookupUser: lookupUser}
	if err := d.validate(in); err != nil {
		return nil, err
	}
	files, err := SystemFiles(dir)
	if err != nil {
		return nil, Problems{{File: dir, Message: err.Error(), Remedy: "ls -la " + dir}}
	}
	if problems := untrustedFolders(dir, owner); len(problems) > 0 {
		return nil, problems
	}
	var others []*Rule
	for _, path := range files {
		list, err := readSystem(path, owner, in)
		if err != nil {
			return nil, appendProblem(nil, path, err)
		}
		if err := d.check(path, list); err != nil {
			return nil, err
		}
		others = append(others, list...)
	}
	path := filepath.Join(dir, MoreDir, fileOf(d.Program))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, &ExistsError{Program: d.Program, File: path}
	}
	return d.addTo(path, nil, others, in)
}

// AddToUser returns a user's own file with the rule at its end. The file must have no mistake and no rule for the
// program, and must belong to owner. It need not exist.
func (d Draft) AddToUser(home string, owner uint32) (*Addition, error) {
	in := Context{OfUser: true}
	if err := d.validate(in); err != nil {
		return nil, err
	}
	path := filepath.Join(home, OfUser)
	f, err := openUser(home)
	switch {
	case errors.Is(err, unix.ENOENT):
		return d.addTo(path, nil, nil, in)
	case errors.Is(err, unix.ELOOP):
		return nil, linkProblem(path)
	case err != nil:
		return nil, appendProblem(nil, path, err)
	}
	defer f.Close()
	text, err := readText(f, path, owner, in)
	if err != nil {
		return nil, appendProblem(nil, path, err)
	}
	list, err := Parse(path, text, in)
	if err != nil {
		return nil, err
	}
	if err := d.check(path, list); err != nil {
		return nil, err
	}
	return d.addTo(path, text, list, in)
}

// check refuses a file that has a rule for the draft's program.
func (d Draft) check(path string, list []*Rule) error {
	same := func(r *Rule) bool {
		return r.Name == d.Name || !r.Destined() && slices.ContainsFunc(r.programs, func(p program) bool { return p.text == d.Program })
	}
	if i := slices.IndexFunc(list, same); i >= 0 {
		return &ExistsError{Program: d.Program, File: path, Line: list[i].Line}
	}
	return nil
}

// addTo appends the rule to the text of a file, nil for a new one, and checks the whole. Others are the existing
// rules.
func (d Draft) addTo(path string, text []byte, others []*Rule, in Context) (*Addition, error) {
	rule, err := d.text()
	if err != nil {
		return nil, err
	}
	a := &Addition{Path: path, New: text == nil, Rule: string(rule)}
	before := bytes.TrimRight(text, "\n")
	if len(before) > 0 {
		a.Text = append(slices.Clone(before), "\n\n"...)
	}
	a.Text = append(a.Text, rule...)
	list, err := Parse(path, a.Text, in)
	if err != nil {
		return nil, err
	}
	a.Line = list[len(list)-1].Line
	d.noteOverlaps(a, others)
	return a, nil
}

// fileOf returns the name of a file in conf.d for the rule of a program. A name that does not contain the program's
// whole name ends with the beginning of a hash, so that programs do not share a file.
func fileOf(program string) string {
	const most = 100 // characters; a file's name has 255 bytes at most
	safe := strings.Map(func(c rune) rune {
		if c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("._+", c)) {
			return c
		}
		return '-'
	}, program)
	name := strings.TrimLeft(safe[:min(len(safe), most)], "-")
	if name != program {
		sum := sha256.Sum256([]byte(program))
		name += fmt.Sprintf("-%x", sum[:3])
	}
	return "always-" + name + ".toml"
}
