package rules

import (
	"hash/fnv"
	"path"
	"slices"
	"strings"
	"time"
)

// Program is the program that a process runs.
type Program struct {
	Path string // the file's path
	Comm string // the kernel's name for the process, 15 characters at most
}

// Facts are the properties of a process that rules compare. A method is called only where a rule needs its fact.
type Facts interface {
	Program() Program
	UID() uint32
	Command() string // the command line, words with a space between
	Cgroup() string  // below the mount
	Parent() Program
	Container() Container // found by the cgroup; the zero value if the process is in none
}

// Container is the container that a process is in.
type Container struct {
	Names []string `json:"names,omitempty"` // the engine's names for it
	ID    string   `json:"id,omitempty"`    // "" with an engine that has only names
}

// IsZero reports whether c stands for no container.
func (c Container) IsZero() bool { return len(c.Names) == 0 && c.ID == "" }

// Set is a list of rules that is prepared for matching. A rule that names its
// programs is compared only for these, so the time does not grow with the number of other rules.
type Set struct {
	rules  []*Rule
	byName map[string][]int // key: the last part of a program's path, or its name
	byComm map[string][]int // key: the name, cut as the kernel does
	others []int            // rules for any program
}

// Compile prepares rules, which are in their order of precedence.
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

// Rules returns all rules of the set.
func (s *Set) Rules() []*Rule { return s.rules }

// NamesContainers reports whether a rule asks for the container that a process is in.
func (s *Set) NamesContainers() bool {
	return slices.ContainsFunc(s.rules, func(r *Rule) bool { return len(r.containers) > 0 })
}

// Match returns the rules that hold for a process at a time. Holding has the first match
// among the rules without "also", and all matches among those with it, in the order of the file.
// Destined has all rules for a part of the traffic that match the process, but not those for
// everybody. For a connection the first of them that matches it holds.
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

// candidates returns the indices of the rules that may match a program, in order.
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

// within reports whether a cgroup is outer itself or below it.
func within(cgroup, outer string) bool {
	below, ok := strings.CutPrefix(cgroup, outer)
	return ok && (below == "" || below[0] == '/')
}

// hasUnit reports whether a part of a cgroup's path is the unit's name.
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

// anyOf reports whether one of the conditions holds, or whether there is no condition.
func anyOf[T any](list []T, holds func(T) bool) bool {
	return len(list) == 0 || slices.ContainsFunc(list, holds)
}

// Phase returns a hash of the time-dependent rules that hold at a time. It changes when they do.
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
