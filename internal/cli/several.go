package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
)

// outcome holds the result of a call for each subject of a selection.
type outcome struct {
	asked    int           // how many subjects the call was for
	dryRun   bool          // nothing was done
	subjects []api.Subject // the subjects for which the daemon has answered
	answers  []*api.SetResponse
	gone     int // number of subjects that ended meanwhile
	refused  int
	first    error // the first refusal of the daemon
	fault    error // the fault that ended the calls before the last subject; nil = there was none
}

// forEach calls for each subject, also after the daemon has refused one; any other fault ends the calls, and the
// outcome keeps the changes before it. The outcome is nil for a dry run without a daemon, for which the call has
// printed all.
func (a *App) forEach(list []api.Subject, dryRun bool, call func(api.Subject) (*api.SetResponse, error)) *outcome {
	o := outcome{asked: len(list), dryRun: dryRun}
	for _, s := range list {
		response, err := call(s)
		var refusal *api.Error
		switch {
		case err == nil && response == nil:
			return nil
		case err == nil:
			o.subjects, o.answers = append(o.subjects, s), append(o.answers, response)
		case a.hasGone(s, err):
			o.gone++
		case errors.As(err, &refusal):
			o.refused++
			if o.first == nil {
				o.first = err
			}
		default:
			o.fault = err
			return &o
		}
	}
	return &o
}

// hasGone reports whether a call failed because its subject has ended.
func (a *App) hasGone(s api.Subject, err error) bool {
	if under := underOf(s); under.Kind == api.KindPID {
		s = under
	}
	if s.Kind == api.KindPID {
		pid, bad := parsePID(s.ID)
		return bad == nil && !a.System.Alive(pid)
	}
	return isCode(err, api.CodeNotFound)
}

// failure returns the error of a command for several subjects: the fault that ended the calls, or else the first
// refusal.
func (o *outcome) failure(s *selection) error {
	total := len(o.answers) + o.refused + o.gone
	switch {
	case o.fault != nil && len(o.answers) == 0:
		return o.fault
	case o.fault != nil:
		done := "done"
		if o.dryRun {
			done = "would be done"
		}
		message, hint, code := explain(o.fault)
		return &failure{message: fmt.Sprintf("%s: %s for %d of %d, then: %s", s.label(), done, len(o.answers), o.asked, message), hint: hint, code: code, cause: o.fault}
	case o.refused == 0 && len(o.answers) == 0 && s.isPattern():
		return failWith(exitNoSubject, "run the command again", "%s: %s, and all have ended meanwhile", s.pattern, count(total, s.noun()))
	case o.refused == 0:
		return nil
	}
	message, hint, code := explain(o.first)
	return &failure{message: fmt.Sprintf("%s: refused for %d of %d: %s", s.label(), o.refused, total, message), hint: hint, code: code, cause: o.first}
}

// printEach prints each answer by show, which gets the answer without its warnings, and then prints each warning once.
func (a *App) printEach(o *outcome, show func(*api.SetResponse, api.Subject)) {
	var warnings []string
	for i, response := range o.answers {
		warnings = append(warnings, response.Warnings...)
		quiet := *response
		quiet.Warnings = nil
		show(&quiet, o.subjects[i])
	}
	slices.Sort(warnings)
	a.warn(warnings)
}

// printOutcome prints an outcome as JSON, or by the function text. A nil outcome was printed already. The error is that
// of the outcome.
func (a *App) printOutcome(s *selection, o *outcome, asJSON bool, text func()) error {
	switch {
	case o == nil:
		return nil
	case o.fault != nil && len(o.answers) == 0: // nothing was done
	case !asJSON:
		text()
	default:
		if err := writeJSON(a.Out, answersOf(s, o)); err != nil {
			return err
		}
	}
	return o.failure(s)
}

// answersOf returns an outcome as --json prints it.
func answersOf(s *selection, o *outcome) *api.SetList {
	list := &api.SetList{Version: api.Version, Pattern: s.pattern.String(), Answers: []api.SetResponse{}}
	for _, response := range o.answers {
		list.Answers = append(list.Answers, *response)
	}
	return list
}

// applyTo sends a requested limit for each subject of a selection, and prints the results.
func (a *App) applyTo(ctx context.Context, s *selection, request api.SetRequest, asJSON bool) error {
	if !s.isPattern() {
		request.Subject = s.subjects[0]
		return a.apply(ctx, request, asJSON)
	}
	o := a.forEach(s.subjects, request.DryRun, func(subject api.Subject) (*api.SetResponse, error) {
		request.Subject = subject
		return a.send(ctx, request)
	})
	return a.printOutcome(s, o, asJSON, func() {
		a.printEach(o, func(response *api.SetResponse, subject api.Subject) { a.changed(response, subject, request.DryRun) })
		if n := len(o.answers); n > 0 {
			fmt.Fprintf(a.Out, "%s: %s\n", printable(s.pattern.String()), appliedText(s, n, request.DryRun))
		}
		a.warn(s.leftOut())
	})
}

// appliedText says on how many subjects a requested limit was set.
func appliedText(s *selection, n int, dryRun bool) string {
	text := "set on " + count(n, s.noun())
	if dryRun {
		text = "would be " + text
	}
	if n > 1 {
		text += ", each by itself"
	}
	if len(s.inner) > 0 {
		text += fmt.Sprintf("; %d more inside share it", len(s.inner))
	}
	return text
}

// nodesForEach asks for the nodes that hold for each subject of a selection. A node that holds for several is listed
// once.
func (a *App) nodesForEach(ctx context.Context, s *selection) (*api.NodeList, error) {
	if !s.isPattern() {
		if _, err := a.present(s.subjects[0]); err != nil {
			return nil, err
		}
		return a.nodesFor(ctx, s.subjects[0])
	}
	all := &api.NodeList{Version: api.Version, Nodes: []api.Node{}}
	known := make(map[uint32]bool)
	for _, subject := range slices.Concat(s.subjects, s.inner) {
		list, err := a.nodesFor(ctx, subject)
		switch {
		case err != nil && a.hasGone(subject, err):
			continue
		case err != nil:
			return nil, err
		}
		all.Time, all.Unknown = list.Time, list.Unknown
		for _, n := range list.Nodes {
			if !known[n.ID] {
				known[n.ID] = true
				all.Nodes = append(all.Nodes, n)
			}
		}
	}
	return all, nil
}
