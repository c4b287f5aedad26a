package rules

import (
	"hash/fnv"
	"path"
	"slices"
	"strings"
	"time"
)

// Program is what a process runs.
type Program struct {
	Path string // of the file
	Comm string // the name that the kernel has for it, 15 characters at most
}

// Facts are what rules look at. Each is asked for only where a rule needs it.
type Facts interface {
	Program() Program
	UID() uint32
	Command() string // the command line, words with a space between
	Cgroup() string  // below the mount
	Parent() Program
	Container() Container // by the cgroup; the zero value if the process is in none
}

// Container is the container that a process is in.
type Container struct {
	Names []string `json:"names,omitempty"` // that its engine has for it
	ID    string   `json:"id,omitempty"`    // "" of engines that have names only
}

// IsZero reports whether it is no container.
func (c Container) IsZero() bool { return len(c.Names) == 0 && c.ID == "" }

// Set is a list of rules that was prepared for matching: a rule that names its
// programs is looked at for these only, however many others there are.
type Set struct {
	rules  []*Rule
	byName map[string][]int // by the last part of a program's path, or its name
	byComm map[string][]int // by a name as the kernel cuts it
	others []int            // for any program
}

// Compile prepares rules, the first first.
func Compile(rules []*Rule) *Set {
	s := &Set{rules: rules, byName: map[string][]int{}, byComm: map[string][]int{}}
	for i, r := range rules {
		literal := len(r.programs) > 0
		for _, p := range r.programs {
			literal = literal && !p.glob
		}
		if !literal {
			s.others = append(s.others, i)
			continue
		}
		for _, p := range r.programs {
			name := path.Base(p.text)
			s.byName[name] = append(s.byName[name], i)
			if !p.path {
				s.byComm[commOf(name)] = append(s.byComm[commOf(name)], i)
			}
		}
	}
	return s
}

// Rules are all of them.
func (s *Set) Rules() []*Rule { return s.rules }

// NamesContainers reports whether a rule asks for the container that a process is in.
func (s *Set) NamesContainers() bool {
	return slices.ContainsFunc(s.rules, func(r *Rule) bool { return len(r.containers) > 0 })
}

// Match returns the rules that hold for a process at a time: the first that
// matches of those without "also", and all that match of those with it. They are in
// the order of the file. Rules for a part of the traffic are apart: all those that match
// the process, of which the first that matches holds for a connection; not those for
// everybody.
func (s *Set) Match(f Facts, now time.Time) (holding, destined []*Rule) {
	if len(s.rules) == 0 {
		return nil, nil
	}
	found := false
	for _, i := range s.candidates(f.Program()) {
		r := s.rules[i]
		if r.Destined() {
			if !r.Everybody() && r.Matches(f, now) {
				destined = append(destined, r)
			}
			continue
		}
		if !r.Also && found || !r.Matches(f, now) {
			continue
		}
		found = found || !r.Also
		holding = append(holding, r)
	}
	return holding, destined
}

// candidates are the indices of the rules that may match a program, in order.
func (s *Set) candidates(p Program) []int {
	named, called := s.byName[path.Base(p.Path)], s.byComm[p.Comm]
	if len(named)+len(called) == 0 {
		return s.others
	}
	list := slices.Concat(named, called, s.others)
	slices.Sort(list)
	return slices.Compact(list)
}

// Matches reports whether all of a rule's conditions hold.
func (r *Rule) Matches(f Facts, now time.Time) bool { return r.Differs(f, now) == "" }

// Differs names the first condition of a rule that does not hold, "" if all do.
func (r *Rule) Differs(f Facts, now time.Time) string {
	switch {
	case !anyOf(r.programs, func(p program) bool { return p.matches(f.Program()) }):
		return "program"
	case !anyOf(r.users, func(uid uint32) bool { return uid == f.UID() }):
		return "user"
	case !r.window.active(now):
		return "time"
	case !anyOf(r.cgroups, func(c string) bool { return within(f.Cgroup(), c) }):
		return "cgroup"
	case !anyOf(r.units, func(u string) bool { return hasUnit(f.Cgroup(), u) }):
		return "unit"
	case !anyOf(r.containers, func(c container) bool { return c.matches(f.Container()) }):
		return "container"
	case !anyOf(r.parents, func(p program) bool { return p.matches(f.Parent()) }):
		return "parent"
	case !anyOf(r.commands, func(c command) bool { return c.matches(f.Command()) }):
		return "command"
	}
	return ""
}

// HoldsIn reports whether a rule's conditions on the cgroup and the unit hold in a cgroup; a rule without such
// conditions holds in all.
func (r *Rule) HoldsIn(cgroup string) bool {
	return anyOf(r.cgroups, func(c string) bool { return within(cgroup, c) }) && anyOf(r.units, func(u string) bool { return hasUnit(cgroup, u) })
}

// within reports whether a cgroup is another one or below it.
func within(cgroup, outer string) bool {
	below, ok := strings.CutPrefix(cgroup, outer)
	return ok && (below == "" || below[0] == '/')
}

// hasUnit reports whether a part of a cgroup's path is a unit's name.
func hasUnit(cgroup, unit string) bool {
	for rest := cgroup; ; {
		at := strings.Index(rest, unit)
		if at < 0 {
			return false
		}
		end := at + len(unit)
		if at > 0 && rest[at-1] == '/' && (end == len(rest) || rest[end] == '/') {
			return true
		}
		rest = rest[at+1:]
	}
}

// anyOf is true for no conditions at all.
func anyOf[T any](list []T, holds func(T) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, holds)
}

// Phase tells which of the rules that depend on the time hold at one: it is another
// when that is.
func (s *Set) Phase(now time.Time) uint64 {
	h := fnv.New64a()
	for i, r := range s.rules {
		if r.Timed() && r.Active(now) {
			_, _ = h.Write([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) // cannot fail
		}
	}
	return h.Sum64()
}

// Timed reports whether a rule depends on the time.
func (r *Rule) Timed() bool { return !r.window.always() }

// Active reports whether a rule holds at a time.
func (r *Rule) Active(now time.Time) bool { return r.window.active(now) }
