package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// MostPerDestination bounds the rules of a file for one address; each range of ports counts by itself. The kernel
	// side compares these rules one after another.
	MostPerDestination = 16
	// mostDestinations bounds the prefixes that the administrator's rules name.
	mostDestinations = 65536
	// MaxUserDestinations bounds those of a user's own file.
	MaxUserDestinations = 1024
)

// reach is a prefix that a rule is for, or that it leaves out. For an address the longest prefix that contains it
// counts.
type reach struct {
	prefix netip.Prefix
	except bool
}

// ports is a range of ports.
type ports struct{ from, to uint16 }

const lastPort = 65535

// Protocol is a transport protocol with ports.
type Protocol string

// The zero value means both protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Destined reports whether a rule is for a part of the traffic only.
func (r *Rule) Destined() bool { return len(r.to)+len(r.ports) > 0 || r.protocol != "" }

// Protocol returns the only protocol that the rule is for, "" = both.
func (r *Rule) Protocol() Protocol { return r.protocol }

// Everybody reports whether a rule is for a part of the traffic of all processes that its owner may limit, and not of
// certain processes.
func (r *Rule) Everybody() bool {
	return r.Destined() && len(r.programs)+len(r.commands)+len(r.users)+len(r.cgroups)+len(r.units)+len(r.parents)+len(r.containers) == 0
}

// MayHoldFor reports whether a rule may be for a user's processes: it names the user, or it names no
// user, cgroup, unit and container. Rules do not know the owner of a cgroup, a unit or a container.
func (r *Rule) MayHoldFor(uid uint32) bool {
	if len(r.users) > 0 {
		return slices.Contains(r.users, uid)
	}
	return len(r.cgroups)+len(r.units)+len(r.containers) == 0
}

// Connections returns the rule's conditions on connections, as text.
func (r *Rule) Connections() []string {
	return slices.DeleteFunc(r.Conditions(), func(text string) bool {
		kind, _, _ := strings.Cut(text, " ")
		return kind != "to" && kind != "port" && kind != "protocol"
	})
}

func parseReach(text string) (reach, error) {
	text, except := strings.CutPrefix(text, "!")
	var p netip.Prefix
	a, err := netip.ParseAddr(text)
	if err == nil {
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return reach{}, fmt.Errorf("%q is neither an address nor a prefix; names are not looked up", text)
	}
	if a.Zone() != "" {
		return reach{}, fmt.Errorf("%q: an address with a zone means another one on each device", text)
	}
	if masked := p.Masked(); masked != p {
		return reach{}, fmt.Errorf("%q has more bits than its length of %d: %v?", text, p.Bits(), masked)
	}
	const mapped = 96
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return reach{p, except}, nil
}

func parsePorts(text string) (ports, error) {
	number := func(text string) (uint16, bool) {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		return uint16(n), err == nil && n > 0
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, ok := number(first)
	to, ok2 := number(last)
	if !ok || !ok2 {
		return ports{}, fmt.Errorf("%q is no port: they are 1 to %d", text, lastPort)
	}
	if from > to {
		return ports{}, fmt.Errorf("the range %q ends before it begins", text)
	}
	return ports{from, to}, nil
}

// destination reads the rule's conditions on connections.
func (o object) destination(r *Rule, say func(string, []string)) {
	texts := o.texts("to")
	for _, text := range texts {
		one, err := parseReach(text)
		if err != nil {
			o.problem("to", `such as: to = "192.0.2.7", ["10.0.0.0/8", "2001:db8::/32"], or ["0.0.0.0/0", "::/0", "!10.0.0.0/8"]`, "%v", err)
			continue
		}
		r.to = append(r.to, one)
	}
	if len(r.to) > 0 && !slices.ContainsFunc(r.to, func(one reach) bool { return !one.except }) {
		o.problem("to", `to = ["0.0.0.0/0", "::/0", "!10.0.0.0/8"]`, "all of to is left out: say of what")
	}
	say("to", texts)
	texts = o.texts("port")
	for _, text := range texts {
		one, err := parsePorts(text)
		if err != nil {
			o.problem("port", `such as: port = 443, or [80, 443, "8000-8100"]`, "%v", err)
			continue
		}
		r.ports = append(r.ports, one)
	}
	say("port", texts)
	if text, ok := o.text("protocol"); ok {
		if r.protocol = Protocol(text); r.protocol != TCP && r.protocol != UDP {
			o.problem("protocol", `"tcp" or "udp"; without the line, both`, "protocol is %q", text)
		}
		say("protocol", []string{text})
	}
}

// reaches returns r.to, or all addresses for a rule that names only ports or a protocol.
func (r *Rule) reaches() []reach {
	if len(r.to) > 0 {
		return r.to
	}
	return []reach{{prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}, {prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0)}}
}

// Destination is a prefix with the rules that hold there, each for a range of ports, in
// their order. A prefix without rules is an exception from a shorter prefix.
type Destination struct {
	Prefix netip.Prefix
	Rules  []DestinationRule
}

// DestinationRule is a rule for some ports.
type DestinationRule struct {
	Rule     *Rule
	From, To uint16
}

// Destinations lists the prefixes that the rules in force at a time name, each with all
// rules that cover it. So a lookup of the longest prefix of an address finds all rules for that address.
// Rules that adapt are not among them.
func (s *Set) Destinations(now time.Time) []Destination {
	return destinationsOf(s.rules, func(r *Rule) bool { return r.Active(now) })
}

// destinationsOf is Destinations for the rules of a list that hold.
func destinationsOf(list []*Rule, holds func(*Rule) bool) []Destination {
	at := prefixesOf(list, holds)
	if len(at) == 0 {
		return nil
	}
	// The kernel side looks IPv4 addresses up as IPv6 ones, and ::/0 must not contain them.
	v4 := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if _, ok := at[v4]; !ok {
		at[v4] = nil
	}
	out := make([]Destination, 0, len(at))
	for prefix := range at {
		d := Destination{Prefix: prefix}
		for _, i := range at.covering(prefix) {
			d.Rules = append(d.Rules, list[i].byPorts()...)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Destination) int { return a.Prefix.Compare(b.Prefix) })
	return out
}

// namedPrefixes holds, by prefix, the rules that name it: their indices in a list of rules.
type namedPrefixes map[netip.Prefix][]naming

// naming is a rule that names a prefix, or that excepts it.
type naming struct {
	rule   int
	except bool
}

// prefixesOf returns the prefixes that the rules of a list name, of those that hold and do not adapt.
func prefixesOf(list []*Rule, holds func(*Rule) bool) namedPrefixes {
	at := namedPrefixes{}
	for i, r := range list {
		if !r.Destined() || r.Adapts() || !holds(r) {
			continue
		}
		for _, one := range r.reaches() {
			at[one.prefix] = append(at[one.prefix], naming{i, one.except})
		}
	}
	return at
}

// covering returns the rules that cover a prefix, in their order. A rule covers it if the longest prefix of the rule
// that contains the given one is no exception.
func (at namedPrefixes) covering(prefix netip.Prefix) []int {
	covers := map[int]bool{}
	for bits := prefix.Bits(); bits >= 0; bits-- {
		shorter, err := prefix.Addr().Prefix(bits)
		if err != nil {
			break
		}
		here := map[int]bool{} // rule: whether it excepts this prefix
		for _, n := range at[shorter] {
			here[n.rule] = here[n.rule] || n.except
		}
		for rule, except := range here {
			if _, known := covers[rule]; !known {
				covers[rule] = !except
			}
		}
	}
	maps.DeleteFunc(covers, func(_ int, does bool) bool { return !does })
	return slices.Sorted(maps.Keys(covers))
}

// byPorts returns the rule for each of its ranges of ports.
func (r *Rule) byPorts() (list []DestinationRule) {
	if len(r.ports) == 0 {
		return []DestinationRule{{r, 0, lastPort}}
	}
	for _, p := range r.ports {
		list = append(list, DestinationRule{r, p.from, p.to})
	}
	return list
}

// checkDestinations refuses more rules for destinations than the kernel side can compare.
func checkDestinations(list []*Rule, most int) Problems {
	var last *Rule
	prefixes := 0
	for _, r := range list {
		if !r.Destined() {
			continue
		}
		if prefixes += len(r.reaches()); prefixes > most {
			return Problems{{File: r.File, Line: r.Line, Column: 1, Message: fmt.Sprintf("rules name more than %d prefixes in to", most), Remedy: "use fewer, shorter prefixes"}}
		}
		last = r
	}
	if last == nil {
		return nil
	}
	for _, d := range destinationsOf(list, func(*Rule) bool { return true }) {
		if len(d.Rules) <= MostPerDestination {
			continue
		}
		r := d.Rules[MostPerDestination].Rule
		return Problems{{
			File: r.File, Line: r.Line, Column: 1,
			Message: fmt.Sprintf("more than %d rules are for %v, each range of ports counted", MostPerDestination, d.Prefix),
			Remedy:  "put some together, or let to name smaller prefixes",
		}}
	}
	return nil
}
