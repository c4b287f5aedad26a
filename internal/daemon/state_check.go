package daemon

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

// check refuses a state that no daemon writes. A number out of range would be a limit that no owner wants, or no limit.
// A node of another kind than its subject's would be a limit on another subject.
func (s *state) check() error {
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

func (s *savedNode) check() error {
	switch {
	case s.Admin.Empty() && s.User.Empty() && s.Timed == nil && (s.Rules == nil || s.Rules.empty() && s.Rules.Outer == 0) && !s.Marker:
		return errors.New("nobody wants anything of it")
	case !known(s.Kind):
		return fmt.Errorf("the kind %d is unknown", s.Kind)
	case !slices.Contains(subjectKinds(s.Kind), s.Subject.Kind):
		return fmt.Errorf("%q is no subject of the kind %d", s.Subject, s.Kind)
	case s.Kind != enforce.KindCgroup && (s.Scope != nil || s.Dir != ""):
		return fmt.Errorf("%q has no folder", s.Subject)
	case (s.Subject.Kind == api.KindTo) != (s.To != nil):
		return fmt.Errorf("%q does not say which part of the traffic is meant", s.Subject)
	}
	if s.To != nil {
		if _, _, err := destination.Parse(s.Subject.ID); err != nil {
			return err
		}
	}
	all := []*limit.Limit{&s.Admin, &s.User}
	if s.Rules != nil {
		for owner := range s.Rules.Owners {
			all = append(all, &s.Rules.Owners[owner].Wish)
		}
	}
	if s.Timed != nil {
		for owner := range s.Timed {
			all = append(all, &s.Timed[owner].Limit)
		}
	}
	for _, w := range all {
		if err := w.Bound(); err != nil {
			return err
		}
	}
	return nil
}
