package desired

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
)

// subjectKinds returns the kinds of subjects that nodes of a kind can have.
func subjectKinds(kind enforce.Kind) []api.Kind {
	switch kind {
	case enforce.KindTree:
		return []api.Kind{api.KindPID, api.KindGroup, api.KindRule}
	case enforce.KindCgroup:
		return []api.Kind{api.KindCgroup, api.KindUnit, api.KindContainer}
	case enforce.KindUser:
		return []api.Kind{api.KindUser}
	case enforce.KindLink:
		return []api.Kind{api.KindLink}
	case enforce.KindHost:
		return []api.Kind{api.KindHost}
	case enforce.KindDestination:
		return []api.Kind{api.KindTo, api.KindRule}
	}
	return nil
}

// KnowsKind reports whether limits have nodes of this kind.
func KnowsKind(k enforce.Kind) bool { return subjectKinds(k) != nil }

// check refuses a state that no daemon writes. A number out of range would be a limit that no owner wants, or no limit.
// A node of another kind than its subject's would be a limit on another subject.
func (s *State) check() error {
	if s.Version < 1 {
		return fmt.Errorf("version %d is unknown", s.Version)
	}
	if len(s.Nodes) >= enforce.FirstSocketNode {
		return fmt.Errorf("%d nodes are more than there can be", len(s.Nodes))
	}
	seen := make(map[uint32]bool)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.ID == 0 || n.ID >= enforce.MaxNodes || seen[n.ID] {
			return fmt.Errorf("node id %d is out of range or there twice", n.ID)
		}
		seen[n.ID] = true
		if err := n.check(); err != nil {
			return fmt.Errorf("node %d: %w", n.ID, err)
		}
	}
	return nil
}

// isUseless reports whether nobody requests anything of the record's node.
func (r *Record) isUseless() bool {
	noRules := r.Rules == nil || r.Rules.Empty() && r.Rules.Outer == 0
	return r.Admin.Empty() && r.User.Empty() && r.Timed == nil && noRules && !r.Marker
}

// check refuses a record that no daemon writes.
func (r *Record) check() error {
	switch {
	case r.isUseless():
		return errors.New("nobody wants anything of it")
	case !KnowsKind(r.Kind):
		return fmt.Errorf("the kind %d is unknown", r.Kind)
	case !slices.Contains(subjectKinds(r.Kind), r.Subject.Kind):
		return fmt.Errorf("%q is no subject of the kind %d", r.Subject, r.Kind)
	case r.Kind != enforce.KindCgroup && (r.Scope != nil || r.Dir != ""):
		return fmt.Errorf("%q has no folder", r.Subject)
	case (r.Subject.Kind == api.KindTo) != (r.To != nil):
		return fmt.Errorf("%q does not say which part of the traffic is meant", r.Subject)
	}
	if r.To != nil {
		if _, _, err := destination.Parse(r.Subject.ID); err != nil {
			return err
		}
	}
	for _, w := range r.limits() {
		if err := w.Bound(); err != nil {
			return err
		}
	}
	return nil
}

// limits returns all limits that the record has by commands and rules, with and without an end.
func (r *Record) limits() []*limit.Limit {
	all := []*limit.Limit{&r.Admin, &r.User}
	if r.Rules != nil {
		for owner := range r.Rules.Owners {
			all = append(all, &r.Rules.Owners[owner].Wish)
		}
	}
	if r.Timed != nil {
		for owner := range r.Timed {
			all = append(all, &r.Timed[owner].Limit)
		}
	}
	return all
}
