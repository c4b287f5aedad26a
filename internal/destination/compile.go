package destination

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
)

// Limit is a selector whose names are looked up, with its number on the kernel side.
type Limit struct {
	Selector
	Listed []netip.Prefix // by its file
	Rule   uint32
	Rank   int // of several for the same the lowest is tried first
}

// Compile lists the prefixes that the limits of a book name, and the rules of its files,
// each with all that cover it: the limits first, that with the longest prefix before
// others, of the same that for fewer ports, or for one protocol, or of the lower rank; then
// the files' rules in their order. Over are prefixes that too many cover, of which the last were left out.
func Compile(book uint32, limits []Limit, files []enforce.DestinationPrefix) (list []enforce.DestinationPrefix, over []netip.Prefix) {
	if len(limits) == 0 {
		return files, nil
	}
	marks := marksOf(limits, files)
	list = make([]enforce.DestinationPrefix, 0, len(marks))
	around := []frame{{held: make([]int16, len(limits))}} // outermost first; what is around all has no prefix
	for i := 0; i < len(marks); {
		at := frame{prefix: marks[i].prefix}
		for len(around) > 1 && !around[len(around)-1].prefix.Contains(at.prefix.Addr()) {
			around = around[:len(around)-1]
		}
		outer := around[len(around)-1]
		at.held, at.files = slices.Clone(outer.held), outer.files
		for ; i < len(marks) && marks[i].prefix == at.prefix; i++ {
			at.note(marks[i])
		}
		at.order = at.ordered(limits)
		at.rules = outer.rules
		if !slices.Equal(at.order, outer.order) || !sameRules(at.files, outer.files) {
			at.rules = nil
			for _, which := range at.order {
				from, to := limits[which].Ports()
				at.rules = append(at.rules, enforce.DestinationRule{Rule: limits[which].Rule, PortFrom: from, PortTo: to})
			}
			at.rules = append(at.rules, at.files...)
		}
		if len(at.rules) > enforce.MostDestinationRules {
			over = append(over, at.prefix)
			at.rules = at.rules[:enforce.MostDestinationRules:enforce.MostDestinationRules]
		}
		list = append(list, enforce.DestinationPrefix{Book: book, Prefix: at.prefix, Rules: at.rules})
		around = append(around, at)
	}
	return list, over
}

// mark is that a limit, or a file, names a prefix.
type mark struct {
	prefix netip.Prefix
	limit  int // -1 = a file's
	except bool
	rules  []enforce.DestinationRule // of the files
}

// marksOf sorts them: outer prefixes before those inside.
func marksOf(limits []Limit, files []enforce.DestinationPrefix) []mark {
	// IPv4 addresses are looked for among IPv6 ones: ::/0 is not to have them.
	marks := []mark{{prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0), limit: noLimit}}
	for i, l := range limits {
		for _, list := range [][]netip.Prefix{l.Prefixes, l.Listed} {
			for _, p := range list {
				marks = append(marks, mark{prefix: p, limit: i})
			}
		}
		for _, p := range l.Except {
			marks = append(marks, mark{prefix: p, limit: i, except: true})
		}
	}
	for _, p := range files {
		marks = append(marks, mark{prefix: p.Prefix, limit: ofFiles, rules: p.Rules})
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.prefix.Compare(b.prefix) })
	return marks
}

const (
	ofFiles = -1
	noLimit = -2
)

// frame is what holds in a prefix.
type frame struct {
	prefix netip.Prefix
	held   []int16 // of each limit: its longest prefix, in bits and 1; negative: left out; 0: none
	files  []enforce.DestinationRule
	order  []int // limits that hold, the first to be tried first
	rules  []enforce.DestinationRule
}

func (f *frame) note(m mark) {
	bits := int16(f.prefix.Bits() + 1)
	switch {
	case m.limit == noLimit:
	case m.limit == ofFiles:
		f.files = m.rules // with those of the prefixes around it
	case m.except:
		f.held[m.limit] = -bits
	case f.held[m.limit] != -bits:
		f.held[m.limit] = bits
	}
}

func (f *frame) ordered(limits []Limit) (order []int) {
	for i, bits := range f.held {
		if bits > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		la, lb := limits[a], limits[b]
		fromA, toA := la.Ports()
		fromB, toB := lb.Ports()
		return cmp.Or(
			cmp.Compare(f.held[b], f.held[a]),
			cmp.Compare(toA-fromA, toB-fromB),
			cmp.Compare(oneProtocol(la), oneProtocol(lb)),
			cmp.Compare(la.Rank, lb.Rank),
			cmp.Compare(a, b),
		)
	})
	return order
}

func oneProtocol(l Limit) int {
	if l.Protocol != "" {
		return 0
	}
	return 1
}

func sameRules(a, b []enforce.DestinationRule) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
