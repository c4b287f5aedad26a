package plan

import (
	"cmp"
	"iter"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// Action is what a step does.
type Action uint8

// The actions.
const (
	Set    Action = iota // set the node
	Assign               // tell the kernel again which nodes hold for which part of the traffic
	Remove               // remove the node
)

// Step is one call of the kernel.
type Step struct {
	Action    Action
	Node      enforce.NodeSpec // nothing for Assign
	IsInterim bool             // another Set of the node follows, which loosens it
}

// Difference returns the steps that bring the kernel from the nodes that it has, by their ids, to those that are wanted.
// A node that the kernel has stays if it is wanted, and also if stays says so, because it is not the plan's.
//
// First comes what tightens, then the assignment of destinations, then what loosens. Therefore, after each step nobody
// may send more than both the old and the new nodes allow. A change that tightens a node in one way and loosens it in
// another takes two steps. There are two exceptions, which are removed before the new node: a node with its subject,
// unless that is a part of the traffic, because the kernel refuses a second node of a subject; and a node of another
// subject that has the id of a wanted one.
func Difference(has map[uint32]enforce.NodeSpec, wanted iter.Seq[enforce.NodeSpec], stays func(enforce.NodeSpec) bool) []Step {
	var tighten, loosen, remove []Step
	assigns, replaced := false, map[uint32]bool{}
	for next := range wanted {
		old, ok := has[next.ID]
		if ok && Same(old, next) {
			continue
		}
		if ok && Clash(old, next) {
			assigns = assigns || old.Kind == enforce.KindDestination
			remove = append(remove, Step{Action: Remove, Node: old})
			replaced[old.ID], ok = true, false
		}
		if !ok {
			assigns = assigns || next.Kind == enforce.KindDestination
			tighten = append(tighten, Step{Node: next})
			continue
		}
		interim, tightens, loosens := between(old, next)
		if tightens || !loosens {
			tighten = append(tighten, Step{Node: interim, IsInterim: loosens})
		}
		if loosens {
			loosen = append(loosen, Step{Node: next})
		}
	}
	for _, old := range has {
		if !stays(old) && !replaced[old.ID] {
			assigns = assigns || old.Kind == enforce.KindDestination
			remove = append(remove, Step{Action: Remove, Node: old})
		}
	}
	outermostFirst(tighten)
	outermostFirst(loosen)
	outermostFirst(remove)
	slices.Reverse(remove) // members of a node fall to what encloses it
	steps, remove := inTheWay(tighten, remove)
	if assigns {
		steps = append(steps, Step{Action: Assign})
	}
	return slices.Concat(steps, loosen, remove)
}

// between returns the tighter of two states of a node, in each of its ceilings, and otherwise the next state.
func between(old, next enforce.NodeSpec) (interim enforce.NodeSpec, tightens, loosens bool) {
	interim = next
	for owner := range next.Ceilings {
		for dir := range next.Ceilings[owner] {
			had, has := old.Ceilings[owner][dir], next.Ceilings[owner][dir].BytesPerSec
			switch {
			case had.BytesPerSec == has:
			case had.BytesPerSec == 0 || has != 0 && has < had.BytesPerSec:
				tightens = true
			default:
				loosens = true
				interim.Ceilings[owner][dir] = had
			}
		}
	}
	tightens = tightens || old.MeterOff && !next.MeterOff || next.Loopback && !old.Loopback
	loosens = loosens || next.MeterOff && !old.MeterOff || old.Loopback && !next.Loopback
	interim.MeterOff, interim.Loopback = old.MeterOff && next.MeterOff, old.Loopback || next.Loopback
	return interim, tightens, loosens
}

// outermostFirst sorts steps: outer kinds first, a tree behind the tree around it, and destinations behind the nodes that
// they may be under.
func outermostFirst(steps []Step) {
	outer := map[uint32]uint32{} // the tree around a tree, of those that have one
	for _, s := range steps {
		if s.Node.Kind == enforce.KindTree && s.Node.Parent != 0 {
			outer[s.Node.ID] = s.Node.Parent
		}
	}
	depth := func(s Step) (n int) {
		for id := outer[s.Node.ID]; id != 0 && n < len(steps); id = outer[id] {
			n++
		}
		return n
	}
	isPart := func(s Step) int {
		if s.Node.Kind == enforce.KindDestination {
			return 1
		}
		return 0
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(
			cmp.Compare(isPart(a), isPart(b)),
			cmp.Compare(b.Node.Kind, a.Node.Kind),
			cmp.Compare(depth(a), depth(b)),
			cmp.Compare(a.Node.ID, b.Node.ID),
		)
	})
}

// subject is what the kernel has one node for.
type subject struct {
	kind enforce.Kind
	key  uint64
	tick uint64 // of a process's start
}

func subjectOf(s enforce.NodeSpec) subject {
	of := subject{kind: s.Kind, key: s.Subject}
	if s.Kind == enforce.KindTree {
		of.tick = s.StartBoottimeNS / identity.TickNS
	}
	return of
}

// Clash reports whether a node stands in the kernel for another subject than a node with its id that is wanted. The
// kernel refuses to change that. Only a preallocated node may get another subject.
func Clash(has, wanted enforce.NodeSpec) bool {
	return has.Kind != wanted.Kind || has.Subject != wanted.Subject && has.Store == 0
}

// inTheWay puts the removal of a node before the new node of the same subject, or with the same id. It returns the
// removals that are left. A part of the traffic may have two nodes for a while: the former one then limits it until the
// assignment.
func inTheWay(tighten, remove []Step) (steps, left []Step) {
	if len(remove) == 0 {
		return tighten, nil
	}
	ofSubject, withID := map[subject]Step{}, map[uint32]Step{}
	for _, s := range remove {
		withID[s.Node.ID] = s
		if s.Node.Kind != enforce.KindDestination {
			ofSubject[subjectOf(s.Node)] = s
		}
	}
	early := map[uint32]bool{}
	for _, s := range tighten {
		for _, before := range []Step{ofSubject[subjectOf(s.Node)], withID[s.Node.ID]} {
			if before.Action == Remove && !early[before.Node.ID] {
				early[before.Node.ID] = true
				steps = append(steps, before)
			}
		}
		steps = append(steps, s)
	}
	for _, s := range remove {
		if !early[s.Node.ID] {
			left = append(left, s)
		}
	}
	return steps, left
}

// Same compares the desired state of a node with the kernel's report. The kernel may spell defaults out, may know
// the start of a process more exactly, and keeps bursts as bytes. It does not report the bound on the backlog. These
// fields are not compared.
func Same(a, b enforce.NodeSpec) bool {
	return SameSubject(a, b) && Comparable(a) == Comparable(b)
}

// SameSubject reports whether two nodes are of the same subject.
func SameSubject(a, b enforce.NodeSpec) bool {
	return a.Kind == b.Kind && a.Subject == b.Subject &&
		(a.Kind != enforce.KindTree || identity.SameStart(a.StartBoottimeNS, b.StartBoottimeNS))
}

// Comparable returns a node without the fields that Same leaves out.
func Comparable(s enforce.NodeSpec) enforce.NodeSpec {
	s.StartBoottimeNS, s.Parent, s.BacklogNS = 0, 0, 0
	if s.Weight == 0 {
		s.Weight = limit.DefaultWeight
	}
	for owner := range s.Ceilings {
		for dir := range s.Ceilings[owner] {
			s.Ceilings[owner][dir].BurstNS = 0
		}
	}
	return s
}
