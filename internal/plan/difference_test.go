package plan

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
)

// The nodes of the model: those around the traffic of some programs to some addresses.
const (
	programs  = 4
	addresses = 3
	hostID    = uint32(1)
	userID    = uint32(2) // of two users
	cgroupID  = uint32(4) // of two cgroups
	groupID   = uint32(6) // of two groups
	treeID    = uint32(8) // of the programs
	innerID   = uint32(12)
	middleID  = uint32(13) // around innerID, and so set before it
	linkID    = uint32(14)
	partID    = uint32(16) // of limits on a part of the traffic
	parts     = uint32(4)
	lastID    = partID + parts - 1
)

// state is what the kernel holds, or should hold.
type state map[uint32]enforce.NodeSpec

// subjectNode returns a node of the model without limits.
func subjectNode(id uint32) enforce.NodeSpec {
	s := enforce.NodeSpec{ID: id, Subject: uint64(id), Weight: 100}
	switch {
	case id >= partID:
		s.Kind = enforce.KindDestination
	case id >= linkID:
		s.Kind = enforce.KindLink
	case id >= groupID:
		s.Kind, s.StartBoottimeNS = enforce.KindTree, uint64(id)*identity.TickNS
		if id < treeID || id >= innerID {
			s.Subject = 0
		}
		s.Parent = map[uint32]uint32{innerID: middleID, middleID: treeID}[id]
	case id >= cgroupID:
		s.Kind = enforce.KindCgroup
	case id >= userID:
		s.Kind = enforce.KindUser
	default:
		s.Kind, s.Subject = enforce.KindHost, 0
	}
	return s
}

// someNode draws the limits of a node.
func someNode(t *rapid.T, id uint32) enforce.NodeSpec {
	s := subjectNode(id)
	for owner := range s.Ceilings {
		for dir := range s.Ceilings[owner] {
			s.Ceilings[owner][dir].BytesPerSec = rapid.Uint64Range(0, 5).Draw(t, "rate")
		}
	}
	flags := rapid.IntRange(0, 31).Draw(t, "flags")
	s.Loopback, s.MeterOff = flags&1 != 0, flags&2 != 0
	s.DSCP, s.Guarantee = uint8(flags>>2&1), uint64(flags>>3&1)
	s.Weight += uint32(flags >> 4 & 1)
	return s
}

// someState draws a state, of which a part is as in another one.
func someState(t *rapid.T, old state) state {
	s := state{}
	for id := hostID; id <= lastID; id++ {
		switch rapid.IntRange(0, 3).Draw(t, "node") {
		case 0: // none
		case 1:
			if had, ok := old[id]; ok {
				s[id] = had
			}
		default:
			s[id] = someNode(t, id)
		}
	}
	return s
}

// part returns the node of the limit that holds for an address, 0 = none: the first of those that there are, which
// begin with another one for each address.
func (s state) part(address int) uint32 {
	for i := range parts {
		id := partID + (uint32(address)+i)%parts
		if _, ok := s[id]; ok {
			return id
		}
	}
	return 0
}

// traffic is what one program sends to one address, or receives from there.
type traffic struct {
	program, address int
	way              enforce.Direction
	isLoopback       bool
}

func allTraffic(yield func(traffic) bool) {
	for program := range programs {
		for address := range addresses {
			for _, way := range []enforce.Direction{enforce.Up, enforce.Down} {
				for _, isLoopback := range []bool{false, true} {
					if !yield(traffic{program, address, way, isLoopback}) {
						return
					}
				}
			}
		}
	}
}

// path returns the nodes around the traffic, but for that of a limit on a part.
func (t traffic) path() []uint32 {
	half, odd := uint32(t.program/2), uint32(t.program%2)
	path := []uint32{hostID, userID + odd, cgroupID + half, groupID + odd, treeID + uint32(t.program), linkID + half}
	if t.program == 0 {
		path = append(path, middleID, innerID)
	}
	return path
}

const unlimited = ^uint64(0)

// ceiling returns the most that one node lets pass.
func ceiling(s enforce.NodeSpec, t traffic) uint64 {
	most := unlimited
	if t.isLoopback && !s.Loopback {
		return most
	}
	lower := func(c enforce.Ceiling) {
		if c.BytesPerSec != 0 {
			most = min(most, c.BytesPerSec)
		}
	}
	for _, c := range s.Ceilings {
		if lower(c[t.way]); t.way == enforce.Up || !s.MeterOff {
			lower(c[enforce.Total])
		}
	}
	return most
}

// allows returns the most of the traffic that may pass: the lowest ceiling on its path. The limit on a part is the
// one that the kernel was told, whatever nodes there are.
func (s state) allows(t traffic, part uint32) uint64 {
	most := unlimited
	for _, id := range append(t.path(), part) {
		if node, ok := s[id]; ok {
			most = min(most, ceiling(node, t))
		}
	}
	return most
}

// model is a fake kernel that is told a difference step by step.
type model struct {
	fake enforcetest.Kernel
	part [addresses]uint32 // as the kernel was told last
}

func (m *model) has(t *rapid.T) state {
	list, err := m.fake.Nodes()
	require.NoError(t, err)
	s := state{}
	for _, spec := range list {
		s[spec.ID] = spec
	}
	return s
}

// do carries out one step.
func (m *model) do(t *rapid.T, step Step, next state) {
	switch step.Action {
	case Set:
		_, wanted := next[step.Node.Parent]
		if _, ok := m.fake.Spec(step.Node.Parent); wanted && !ok {
			t.Fatalf("node %d is set before the node %d around it", step.Node.ID, step.Node.Parent)
		}
		require.NoError(t, m.fake.SetNode(step.Node))
	case Remove:
		require.NoError(t, m.fake.RemoveNode(step.Node.ID))
	case Assign:
		var to enforce.Destinations
		for address := range m.part {
			m.part[address] = next.part(address)
			to.Uses = append(to.Uses, enforce.DestinationUse{Rule: uint32(address+1) | enforce.RuleEverybody, Node: m.part[address]})
		}
		require.NoError(t, m.fake.SetDestinations(to))
	}
}

// follow brings the kernel to the next state, and returns the number of steps. After each step no traffic may be more
// than the old and the next state allow.
func (m *model) follow(t *rapid.T, next state) int {
	old := m.has(t)
	most := map[traffic]uint64{}
	for of := range allTraffic {
		most[of] = max(old.allows(of, m.part[of.address]), next.allows(of, next.part(of.address)))
	}
	steps := Difference(old, maps.Values(next), func(s enforce.NodeSpec) bool { _, ok := next[s.ID]; return ok })
	for i, step := range steps {
		m.do(t, step, next)
		now := m.has(t)
		for of, most := range most {
			if allowed := now.allows(of, m.part[of.address]); allowed > most {
				t.Fatalf("after step %d of %+v\n%+v may be %d, at most %d\nfrom %+v\nto %+v", i+1, steps, of, allowed, most, old, next)
			}
		}
	}
	require.Equal(t, next, m.has(t))
	require.Equal(t, [addresses]uint32{next.part(0), next.part(1), next.part(2)}, m.part)
	again := Difference(next, maps.Values(next), func(enforce.NodeSpec) bool { return true })
	require.Empty(t, again)
	return len(steps)
}

// For any two states of the kernel the steps of the difference end in the latter, and on the way nobody may
// send or receive more than both allow.
func TestStepsAllowNoMore(t *testing.T) {
	const enough = 100_000
	steps := 0
	for steps < enough && !t.Failed() {
		rapid.Check(t, func(t *rapid.T) {
			var m model
			first := someState(t, nil)
			steps += m.follow(t, first)
			steps += m.follow(t, someState(t, first))
		})
	}
	t.Logf("%d steps", steps)
}

func calls(steps []Step) (list []string) {
	names := map[Action]string{Set: "set ", Assign: "assign ", Remove: "remove "}
	for _, s := range steps {
		list = append(list, names[s.Action]+string(rune('0'+s.Node.ID)))
	}
	return list
}

// The kernel refuses a second node of a subject, so the former one goes right before the new one.
func TestNodeInTheWay(t *testing.T) {
	user := func(id uint32, subject uint64) enforce.NodeSpec {
		return enforce.NodeSpec{ID: id, Kind: enforce.KindUser, Subject: subject}
	}
	has := state{1: user(1, 10), 2: user(2, 20), 3: user(3, 30)}
	want := state{4: user(4, 20), 5: user(5, 50), 3: user(3, 30)}
	steps := Difference(has, maps.Values(want), func(s enforce.NodeSpec) bool { return s.ID == 3 })
	require.Equal(t, []string{"remove 2", "set 4", "set 5", "remove 1"}, calls(steps))
}

// A part of the traffic may have two nodes. The former one limits it until the assignment.
func TestPartIsNotInTheWay(t *testing.T) {
	part := func(id uint32) enforce.NodeSpec {
		return enforce.NodeSpec{ID: id, Kind: enforce.KindDestination, Subject: 10}
	}
	steps := Difference(state{1: part(1)}, slices.Values([]enforce.NodeSpec{part(2)}), func(enforce.NodeSpec) bool { return false })
	require.Equal(t, []string{"set 2", "assign 0", "remove 1"}, calls(steps))
}

// The kernel refuses to change the subject of a node, so a node of another subject goes right before the one with its id.
// A preallocated node may get a subject.
func TestIDInTheWay(t *testing.T) {
	of := func(id uint32, kind enforce.Kind, subject uint64) enforce.NodeSpec {
		return enforce.NodeSpec{ID: id, Kind: kind, Subject: subject}
	}
	stored := of(3, enforce.KindDestination, 0)
	stored.Store = 9
	has := state{1: of(1, enforce.KindUser, 10), 2: of(2, enforce.KindDestination, 20), 3: stored, 4: of(4, enforce.KindUser, 40)}
	want := state{1: of(1, enforce.KindUser, 11), 2: of(2, enforce.KindUser, 20), 3: of(3, enforce.KindDestination, 30), 4: of(4, enforce.KindUser, 40)}
	for _, stays := range []bool{true, false} {
		steps := Difference(has, maps.Values(want), func(enforce.NodeSpec) bool { return stays })
		list := calls(steps)
		for _, id := range []string{"1", "2"} {
			i := slices.Index(list, "remove "+id)
			require.GreaterOrEqual(t, i, 0, list)
			require.Equal(t, "set "+id, list[i+1], list)
		}
		require.Contains(t, list, "set 3")
		require.Contains(t, list, "assign 0")
		if stays {
			require.Len(t, list, 6)
			require.NotContains(t, list, "remove 3")
		}
	}
}

// A change that only loosens a node, or only tightens it, is one step.
func TestOneStepWhereOneIsEnough(t *testing.T) {
	of := func(up, down uint64) enforce.NodeSpec {
		s := enforce.NodeSpec{ID: 1, Kind: enforce.KindUser, Subject: 10}
		s.Ceilings[enforce.OwnerAdmin][enforce.Up].BytesPerSec, s.Ceilings[enforce.OwnerAdmin][enforce.Down].BytesPerSec = up, down
		return s
	}
	for next, want := range map[enforce.NodeSpec][]Step{
		of(2, 2): nil,
		of(1, 2): {{Node: of(1, 2)}},
		of(3, 0): {{Node: of(3, 0)}},
		of(1, 0): {{Node: of(1, 2), IsInterim: true}, {Node: of(1, 0)}},
	} {
		steps := Difference(state{1: of(2, 2)}, slices.Values([]enforce.NodeSpec{next}), func(enforce.NodeSpec) bool { return true })
		require.Equal(t, want, steps)
	}
}

// uncompared are the fields of a node that the kernel does not report as they were set.
var uncompared = []string{"StartBoottimeNS", "Parent", "BacklogNS"}

// Each field of a node counts in the comparison with the kernel.
func TestEachFieldIsCompared(t *testing.T) {
	node := enforce.NodeSpec{ID: 1, Kind: enforce.KindDestination, Subject: 2, Weight: 1}
	fields := reflect.TypeFor[enforce.NodeSpec]()
	for i := range fields.NumField() {
		name, changed := fields.Field(i).Name, node
		switch f := reflect.ValueOf(&changed).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Array:
			changed.Ceilings[enforce.OwnerUser][enforce.Total].Lapse.BytesPerSec = 1
		case reflect.Struct:
			changed.Line.Cells = true
		default:
			f.SetUint(f.Uint() + 7)
		}
		require.NotEqual(t, node, changed, name)
		if !slices.Contains(uncompared, name) {
			require.False(t, Same(node, changed), name)
		}
	}
}

// The kernel side does not report the backlog bound. A node without one in its report is therefore not set again at
// each comparison.
func TestBacklogIsNotCompared(t *testing.T) {
	a := enforce.NodeSpec{ID: 1, Kind: enforce.KindDestination, Subject: 2, BacklogNS: 1e9}
	b := a
	b.BacklogNS = 0
	require.True(t, Same(a, b))
}
