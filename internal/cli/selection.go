package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/similar"
)

// kindName is the kind of a subject that stands for the processes that run a program. Commands replace the subject by
// these processes; the daemon does not know the kind.
const kindName api.Kind = "name"

// allContainers is the pattern that each container matches.
const allContainers = "all"

// parseSubject reads a subject in words: the number of a process, name:PROGRAM, or a subject as ls prints it.
func parseSubject(word string) (api.Subject, error) {
	if word != "" && strings.Trim(word, "-0123456789") == "" {
		return api.Subject{Kind: api.KindPID, ID: word}, nil
	}
	if program, is := strings.CutPrefix(word, string(kindName)+":"); is {
		if program == "" {
			return api.Subject{}, fail("such as name:curl", "subject %q: name needs a program", word)
		}
		return api.Subject{Kind: kindName, ID: program}, nil
	}
	s, err := api.ParseSubject(word)
	if err != nil {
		hint := subjectHelp
		if !strings.Contains(word, ":") {
			hint = "did you mean user:" + word + ", or name:" + word + " for the processes that run it?\n" + hint
		}
		return api.Subject{}, fail(hint, "%v", err)
	}
	return s, nil
}

// isPattern reports whether a subject stands for others: for the processes that run a program, or
// for the containers whose names match.
func isPattern(s api.Subject) bool {
	return s.Kind == kindName || s.Kind == api.KindContainer && (s.ID == allContainers || strings.ContainsAny(s.ID, `*?[\`))
}

// selection holds the subjects of a command: one subject, or those that a pattern stands for.
type selection struct {
	pattern  api.Subject // the zero value if the user named the subject itself, and for unset --all
	subjects []api.Subject
	// inner are processes that the pattern means and that descend from some of subjects. The limits of these hold for
	// them, too.
	inner []api.Subject
	// others counts the processes of other users that run the program.
	others int
}

func (s *selection) isPattern() bool { return s.pattern != (api.Subject{}) }

// label returns the name of the selection in errors. A selection without a pattern is that of unset --all.
func (s *selection) label() string {
	if s.isPattern() {
		return s.pattern.String()
	}
	return "all"
}

// title is the selection as the user wrote it.
func (s *selection) title() string {
	if s.isPattern() {
		return s.pattern.String()
	}
	return s.subjects[0].String()
}

// noun returns the word for the subjects that the pattern stands for.
func (s *selection) noun() string {
	if s.pattern.Kind == api.KindContainer {
		return "container"
	}
	return "process"
}

// leftOut notes the processes of the name that the selection excludes, with the reason.
func (s *selection) leftOut() []string {
	if s.others == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s of other users left out: sudo netnice ... means them, too", s.pattern, count(s.others, "process"))}
}

// only returns the one subject of a selection, for commands that take no more.
func (s *selection) only() (api.Subject, error) {
	all := slices.Concat(s.subjects, s.inner)
	if len(all) == 1 {
		return all[0], nil
	}
	return api.Subject{}, fail("name one of them: "+subjectList(all), "%s stands for %s", s.pattern, count(len(all), s.noun()))
}

// subjectList names up to ten subjects.
func subjectList(list []api.Subject) string {
	const most = 10
	texts := make([]string, 0, most+1)
	for _, s := range list {
		if len(texts) == most {
			texts = append(texts, "...")
			break
		}
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ", ")
}

// expand finds the subjects that a pattern stands for now.
func (a *App) expand(ctx context.Context, pattern api.Subject) (*selection, error) {
	if pattern.Kind == api.KindContainer {
		return a.containersLike(pattern)
	}
	return a.processesNamed(ctx, pattern)
}

// processesNamed finds the processes that run a program: for an administrator those of all users, for others their own.
// It excludes the first process of the machine, which stands for the host, and this command.
func (a *App) processesNamed(ctx context.Context, pattern api.Subject) (*selection, error) {
	return a.processesNamedFor(a.caller(ctx), pattern)
}

// processesNamedFor returns the selection of the processes that run a program and that a caller may limit.
func (a *App) processesNamedFor(who caller, pattern api.Subject) (*selection, error) {
	matches, err := rules.MatchProgram(pattern.ID)
	if err != nil {
		return nil, fail("such as name:curl, name:/usr/bin/curl or 'name:python3*'", "%s: %v", pattern, err)
	}
	all, err := a.System.Processes()
	if err != nil {
		return nil, err
	}
	self := a.System.PID()
	found := identity.Select(all, func(p identity.ProcessInfo) bool {
		return p.PID != 1 && p.PID != self && matches(rules.Program{Path: p.Path, Comm: p.Comm})
	}, who.owns)
	s := &selection{pattern: pattern, others: found.Others}
	for _, pid := range found.Outermost {
		s.subjects = append(s.subjects, pidSubject(pid))
	}
	for _, pid := range found.Inner {
		s.inner = append(s.inner, pidSubject(pid))
	}
	switch {
	case len(s.subjects) > 0:
		return s, nil
	case s.others > 0:
		return nil, failWith(exitNoSubject, "sudo netnice ... means them, too", "%s: no process of yours runs it, but %s of others", pattern, count(s.others, "process"))
	}
	return nil, noSuchProgram(pattern, all, who)
}

// noSuchProgram returns the error that no process runs a program. It names similar programs that the caller may limit.
func noSuchProgram(pattern api.Subject, all []identity.ProcessInfo, who caller) error {
	all = slices.DeleteFunc(all, func(p identity.ProcessInfo) bool { return !who.owns(p.UID) })
	hint := "ps -e lists what runs"
	if like := similar.Words(pattern.ID, identity.ProgramNames(all)); len(like) > 0 {
		for i := range like {
			like[i] = string(kindName) + ":" + like[i]
		}
		hint = "did you mean " + strings.Join(like, " or ") + "?"
	}
	return failWith(exitNoSubject, hint, "no process runs %q", pattern.ID)
}

// containersLike finds the containers whose names match a pattern, running or not.
func (a *App) containersLike(pattern api.Subject) (*selection, error) {
	if _, err := path.Match(pattern.ID, ""); err != nil {
		return nil, fail("such as --container 'web-*'", "the pattern %q is not complete: \\[ stands for the character itself", pattern.ID)
	}
	list, err := a.System.Containers()
	if err != nil {
		return nil, err
	}
	s := &selection{pattern: pattern}
	var all []api.Subject
	for _, c := range list {
		subject := api.Subject{Kind: api.KindContainer, ID: c.Subject()}
		all = append(all, subject)
		if matchesContainer(pattern.ID, append(c.Names, c.Subject())...) {
			s.subjects = append(s.subjects, subject)
		}
	}
	asRoot := ""
	if a.System.EUID() != 0 {
		asRoot = "; root alone may read their names: sudo netnice ..."
	}
	switch {
	case len(all) == 0:
		return nil, failWith(exitNoSubject, "docker ps -a, or podman ps -a, lists them"+asRoot, "there is no container of the machine's")
	case len(s.subjects) == 0:
		return nil, failWith(exitNoSubject, "there are "+subjectList(all)+asRoot, "no container is called like %q", pattern.ID)
	}
	return s, nil
}

// matchesContainer reports whether a pattern, which is complete, matches one of a container's names.
func matchesContainer(pattern string, names ...string) bool {
	return pattern == allContainers || slices.ContainsFunc(names, func(name string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// onePID reads a process in words: its number, also as pid:P, or name:PROGRAM if one process runs that.
func (a *App) onePID(ctx context.Context, word string) (int, error) {
	if !strings.Contains(word, ":") {
		return parsePID(word)
	}
	s, err := parseSubject(word)
	if err != nil {
		return 0, err
	}
	if s.Kind == kindName {
		found, err := a.processesNamed(ctx, s)
		if err != nil {
			return 0, err
		}
		if s, err = found.only(); err != nil {
			return 0, err
		}
	}
	if s.Kind != api.KindPID {
		return 0, fail("netnice show "+s.String(), "%s is no process", s)
	}
	return parsePID(s.ID)
}
