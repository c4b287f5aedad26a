package rules

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
)

// overlaps reports whether a program may match both patterns. It finds an overlap of two patterns with special
// characters only where one of them matches the other's text.
func (p program) overlaps(q program) bool {
	if p.path != q.path {
		p, q = p.base(), q.base()
	}
	return p.matches(q.asProgram()) || q.matches(p.asProgram())
}

// base returns the pattern of the last part of a path.
func (p program) base() program {
	p, err := newProgram(path.Base(p.text))
	if err != nil {
		return program{} // a bracket began in another part of the path; this one matches nothing
	}
	return p
}

// asProgram returns a program whose name is the pattern's text.
func (p program) asProgram() Program {
	return Program{Path: p.text, Comm: commOf(path.Base(p.text))}
}

// noteOverlaps adds a note to an addition for each rule of a file that may be for the same processes as the draft's.
// The first rule that matches a process holds, and files are read in the order of SystemFiles.
func (d Draft) noteOverlaps(a *Addition, list []*Rule) {
	drafted, err := newProgram(d.Program)
	if err != nil {
		return // validate reports the mistake
	}
	for _, r := range list {
		if r.Also || r.Destined() || !slices.ContainsFunc(r.programs, drafted.overlaps) {
			continue
		}
		order := "comes before this one, and holds instead of it"
		if readsBefore(a.Path, r.File) {
			order = "comes after this one, which holds instead of it"
		}
		a.Notes = append(a.Notes, fmt.Sprintf("the rule %q in %s %s where both match: netnice rules test PID", r.Name, r.Where(), order))
	}
}

// readsBefore reports whether a file is read before another one of the administrator's; a file is not before itself.
func readsBefore(file, other string) bool {
	inMore := func(path string) bool { return filepath.Base(filepath.Dir(path)) == MoreDir }
	return inMore(file) && inMore(other) && filepath.Base(file) < filepath.Base(other)
}
