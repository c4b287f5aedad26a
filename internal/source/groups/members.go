package groups

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// isInside reports whether a process is in the tree of a group.
func (s *Source[T]) isInside(pid int, group Node) bool {
	return slices.Contains(s.kernel.Trees(pid), group.ID)
}

// takeIn makes a process, with its descendants, a member.
func (s *Source[T]) takeIn(tx T, by auth.Actor, group Node, m member) error {
	next := s.host.Find(m.Resolved)
	if next.ID == 0 {
		next.Resolved = m.Resolved
	}
	if pid := int(m.Key); !s.isInside(pid, group) {
		tx.OnFailure(func() error {
			return request.StepBack(fmt.Sprintf("take it out: netnice fair --group %s %d; netnice fair --leave %d", group.Subject.ID, pid, pid),
				fmt.Sprintf("process %d stays in %s", pid, group.Subject), s.leaveAgain(m.Resolved, group))
		})
		if err := s.kernel.Join(group.ID, pid); err != nil {
			return err
		}
	}
	owner := by.Owner()
	next.Group = group.Subject.ID
	if w := &next.Requested[owner]; m.weight != 0 {
		w.Weight = m.weight
	} else if w.Weight == 0 {
		w.Weight = limit.DefaultWeight
	}
	if owner == enforce.OwnerUser {
		next.User = by.UID
	}
	if err := tx.SetMember(next); err != nil {
		return err
	}
	tx.Then(func() {
		s.log.Info("taken into a group", "subject", m.Subject.String(), "group", next.Group, "by", by.UID)
	})
	return nil
}

// takeOut takes a process out of its group.
func (s *Source[T]) takeOut(tx T, by auth.Actor, m leaving) error {
	if m.inside {
		if err := s.kernel.Leave(m.node.ID); err != nil {
			return err
		}
		tx.OnFailure(func() error {
			return request.StepBack(fmt.Sprintf("netnice fair --group %s %d", m.node.Group, m.pid), fmt.Sprintf("process %d is out of %s", m.pid, m.group.Subject),
				s.kernel.Join(m.group.ID, m.pid))
		})
	}
	if err := tx.SetMember(m.node.alone()); err != nil {
		return err
	}
	tx.Then(func() {
		s.log.Info("taken out of a group", "subject", m.node.Subject.String(), "group", m.node.Group, "by", by.UID)
	})
	return nil
}

// leaveAgain takes a process out of a group that it has just joined. Only a node can leave: a process without one leaves
// inside a node that exists no longer than that.
func (s *Source[T]) leaveAgain(res identity.Resolved, group Node) error {
	pid := int(res.Key)
	if !s.isInside(pid, group) {
		return nil // the kernel has refused it
	}
	if own := s.host.Find(res); own.ID != 0 {
		return s.kernel.Leave(own.ID)
	}
	way := enforce.NodeSpec{
		ID: s.host.FreeID(), Kind: enforce.KindTree, StartBoottimeNS: identityOf("out of "+group.Subject.ID, 0).StartBoottimeNS,
		Parent: group.ID, Weight: limit.DefaultWeight, Own: true,
	}
	errs := []error{enforce.LeaveBy(s.kernel, way, pid)}
	for _, n := range s.host.Members(group.Subject.ID) { // members among its descendants have left with it
		if pid := int(n.Key); !s.isInside(pid, group) {
			errs = append(errs, s.kernel.Join(group.ID, pid))
		}
	}
	return errors.Join(errs...)
}

// ReleaseMembers ends the membership of all members of a group, whose node the host lifts after that: the kernel could
// not take the members in again as they were. They keep their other limits.
func (s *Source[T]) ReleaseMembers(tx T, group string) error {
	for _, n := range s.host.Members(group) {
		if err := tx.SetMember(n.alone()); err != nil {
			return err
		}
	}
	return nil
}

// alone returns the node without its group. The default weight is taken to be the group's; other weights stay.
func (n Node) alone() Node {
	n.Group = ""
	for owner := range n.Requested {
		if n.Requested[owner].Weight == limit.DefaultWeight {
			n.Requested[owner].Weight = 0
		}
	}
	return n
}
