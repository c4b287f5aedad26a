package destination

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/netnice/netnice/internal/enforce"
)

// Limit is a selector with resolved names, and its number on the kernel side.
type Limit struct {
	Selector
	Listed []netip.Prefix // the prefixes of its file
	Rule   uint32
	Rank   int // order among limits for the same traffic, the lowest first
}

// Compile lists the prefixes of an owner's limits (book is the owner's rule set), and those of its files' rules.
// Each prefix has all limits and rules that cover it. The limits come first, sorted by the longest prefix, then by
// fewer ports, then one protocol before both, then by the lower rank. The files' rules follow in their order.
// Over lists the prefixes that too many limits and rules cover; the last of these were left out.
func Compile(book uint32, limits []Limit, files []enforce.DestinationPrefix) (list []enforce.DestinationPrefix, over []netip.Prefix) {
	if len(limits) == 0 {
		return files, nil
	}
	marks := marksOf(limits, files)
	list = make([]enforce.DestinationPrefix, 0, len(marks))
	around := []frame{{held: make([]int16, len(limits))}} // outermost first; the outermost frame has no prefix
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

// mark says that a limit, or a file, names a prefix.
type mark struct {
	prefix netip.Prefix
	limit  int // -1 = a file's
	except bool
	rules  []enforce.DestinationRule // the files' rules
}

// marksOf returns the marks, sorted so that outer prefixes come before those inside.
func marksOf(limits []Limit, files []enforce.DestinationPrefix) []mark {
	// The kernel side looks IPv4 addresses up as IPv6 ones, and ::/0 must not contain them.
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

// frame holds the limits and rules that hold in a prefix.
type frame struct {
	prefix netip.Prefix
	held   []int16 // each limit's longest prefix here, its bits + 1; negative: an exception; 0: none
	files  []enforce.DestinationRule
	order  []int // limits that hold, the first to be tried first
	rules  []enforce.DestinationRule
}

func (f *frame) note(m mark) {
	bits := int16(f.prefix.Bits() + 1)
	switch {
	case m.limit == noLimit:
	case m.limit == ofFiles:
		f.files = m.rules // these include the rules of the outer prefixes
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
