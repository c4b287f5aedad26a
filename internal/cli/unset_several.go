package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/rules"
)

// liftSelection lifts the limits of each subject of a selection.
func (a *App) liftSelection(ctx context.Context, s *selection, dryRun, asJSON bool) error {
	if !s.isPattern() {
		return a.lift(ctx, s.subjects[0], dryRun, asJSON)
	}
	o := a.forEach(slices.Concat(s.subjects, s.inner), dryRun, func(subject api.Subject) (*api.SetResponse, error) {
		return a.liftOne(ctx, subject, dryRun)
	})
	return a.printOutcome(s, o, asJSON, func() {
		a.printEach(o, func(response *api.SetResponse, subject api.Subject) { a.lifted(ctx, response, subject, dryRun) })
		if len(o.answers) > 0 {
			fmt.Fprintf(a.Out, "%s: %s %s\n", printable(s.pattern.String()), liftedWord(dryRun), count(o.changed(), s.noun()))
		}
	})
}

// changed counts the subjects whose limits were lifted, at least in part.
func (o *outcome) changed() int {
	n := 0
	for _, response := range o.answers {
		if response.Changed {
			n++
		}
	}
	return n
}

func liftedWord(dryRun bool) string {
	if dryRun {
		return "would be lifted on"
	}
	return "lifted on"
}

// liftLike lifts the limits of the subjects with limits that match a pattern. No matching process or container needs to
// run, because a limit may outlive its first process, and a container.
func (a *App) liftLike(ctx context.Context, pattern api.Subject, dryRun, asJSON bool) error {
	nodes, err := a.nodesToLift(ctx, pattern, dryRun)
	if err != nil || nodes == nil {
		return err
	}
	matches, err := a.nodeMatcher(ctx, pattern)
	if err != nil {
		return err
	}
	s := &selection{pattern: pattern}
	for i := range nodes.Nodes {
		if matches(&nodes.Nodes[i]) {
			s.subjects = append(s.subjects, nodes.Nodes[i].Subject)
		}
	}
	if len(s.subjects) > 0 {
		return a.liftSelection(ctx, s, dryRun, asJSON)
	}
	if _, err := a.expand(ctx, pattern); err != nil {
		return err // the pattern matches nothing at all
	}
	if asJSON {
		return writeJSON(a.Out, answersOf(s, new(outcome)))
	}
	fmt.Fprintf(a.Out, "%s: no limit (unchanged)\n", printable(pattern.String()))
	return nil
}

// nodesToLift lists the nodes. It starts a daemon as for lifting a limit. The list is nil for a dry run without a
// daemon, for which nodesToLift has printed all.
func (a *App) nodesToLift(ctx context.Context, s api.Subject, dryRun bool) (list *api.NodeList, err error) {
	err = a.callLift(ctx, func(ctx context.Context, c *client.Client) error {
		answer, err := c.Nodes(ctx)
		if err == nil {
			list = answer
		}
		return err
	}, s, dryRun)
	return list, err
}

// nodeMatcher returns a test for nodes that a pattern means and that the caller may lift.
func (a *App) nodeMatcher(ctx context.Context, pattern api.Subject) (func(*api.Node) bool, error) {
	if pattern.Kind == api.KindContainer {
		return func(n *api.Node) bool {
			return n.Subject.Kind == api.KindContainer && matchesContainer(pattern.ID, n.Subject.ID)
		}, nil
	}
	program, err := rules.MatchProgram(pattern.ID)
	if err != nil {
		return nil, fail("such as name:curl", "%s: %v", pattern, err)
	}
	who, running := a.caller(ctx), make(map[api.Subject]bool)
	if s, err := a.processesNamedFor(who, pattern); err == nil { // else no such process runs, and nodes have names, too
		for _, subject := range slices.Concat(s.subjects, s.inner) {
			running[subject] = true
		}
	}
	return func(n *api.Node) bool {
		return n.Subject.Kind == api.KindPID && who.owns(n.UID) && (running[n.Subject] || program(rules.Program{Path: n.Name, Comm: n.Name}))
	}, nil
}

// liftAll lifts the caller's limits that commands have set, on all subjects, and prints the limits that stay.
func (a *App) liftAll(ctx context.Context, dryRun, asJSON bool) error {
	all := api.Subject{Kind: "all"} // for the text of a dry run
	list, err := a.nodesToLift(ctx, all, dryRun)
	if err != nil || list == nil {
		return err
	}
	who := a.caller(ctx)
	var subjects []api.Subject
	known := make(map[api.Subject]bool)
	for i := range list.Nodes {
		if n := &list.Nodes[i]; isOfCommands(n) && who.mayHaveSet(n) && !known[n.Subject] {
			known[n.Subject] = true
			subjects = append(subjects, n.Subject)
		}
	}
	o := a.forEach(subjects, dryRun, func(s api.Subject) (*api.SetResponse, error) { return a.liftOne(ctx, s, dryRun) })
	if o != nil && !who.admin {
		o.refused = 0 // many of the limits belong to others, and refusals are no failure
	}
	return a.printOutcome(&selection{}, o, asJSON, func() {
		a.printLiftedAll(o, dryRun)
		if o.fault != nil {
			return // the daemon has nothing more to say
		}
		if !dryRun {
			list, err = a.nodesWithin(ctx, readTimeout)
		}
		if err == nil { // else the daemon has left with its last limit
			a.printStaying(list, who)
		}
	})
}

// printLiftedAll prints the number of subjects whose limits unset --all has lifted. For a dry run it names them, too.
func (a *App) printLiftedAll(o *outcome, dryRun bool) {
	var warnings []string
	for i, response := range o.answers {
		if response.Changed && dryRun {
			fmt.Fprintf(a.Out, "%s: would be lifted\n", printable(o.subjects[i].String()))
		}
		if response.Changed {
			warnings = append(warnings, response.Warnings...)
		}
	}
	if n := o.changed(); n > 0 {
		fmt.Fprintf(a.Out, "%s %s\n", liftedWord(dryRun), count(n, "subject"))
	} else {
		fmt.Fprintln(a.Out, "no limit to lift (unchanged)")
	}
	slices.Sort(warnings)
	a.warn(warnings)
}

// isOfCommands reports whether commands may have set a limit on a node that unset --all lifts. It excludes the nodes of
// rules and of devices, and nodes with a destination that the caller may not see.
func isOfCommands(n *api.Node) bool {
	switch n.Subject.Kind {
	case api.KindPID, api.KindUser, api.KindCgroup, api.KindUnit, api.KindContainer, api.KindGroup, api.KindHost:
		return true
	case api.KindTo:
		return !n.IsHidden() && !isOfRules(n)
	}
	return false // also for kinds that this release does not know
}

// isOfRules reports whether all limits of a node are of rules.
func isOfRules(n *api.Node) bool {
	return len(n.Limits) > 0 && !slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Rule == nil })
}

// printStaying prints the limits that unset --all leaves, and the commands that lift them.
func (a *App) printStaying(list *api.NodeList, who caller) {
	ofRules, others := 0, 0
	for i := range list.Nodes {
		n := &list.Nodes[i]
		switch {
		case n.Subject.Kind == api.KindLink && !who.admin: // the administrator has set it
		case n.Subject.Kind == api.KindLink:
			fmt.Fprintf(a.Out, "stays: %s, %s; netnice unset %s lifts it\n", printable(n.Subject.String()), a.nodeText(n), printable(n.Subject.String()))
		case n.Subject.Kind == api.KindRule || isOfRules(n):
			ofRules++
		case !who.admin && who.sharesWithOthers(n):
			others++
		}
	}
	if ofRules > 0 {
		fmt.Fprintf(a.Out, "stays: what rules set on %s; netnice rules list shows where\n", count(ofRules, "subject"))
	}
	if others > 0 {
		fmt.Fprintf(a.Out, "stays: what others set on %s; netnice ls shows where, sudo netnice unset SUBJECT lifts one\n", count(others, "subject"))
	}
	if n := who.powers(list.Powers); n > 0 {
		fmt.Fprintf(a.Out, "stays: shares of the processors, of %s; netnice power PID 0 lifts one\n", count(n, "process"))
	}
}
