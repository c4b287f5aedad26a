package trafficgen

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Program describes the work of one tree of processes, which send or receive, and its limit.
type Program struct {
	Seed     uint64   `json:"seed"`
	Receives bool     `json:"receives,omitempty"` // each sender receives instead, and its peer sends
	Limit    Traits   `json:"limit"`
	Senders  []Traits `json:"senders"`
}

// Traits maps each dimension to its choice.
type Traits map[string]string

// dimension is a property with choices. Shrink returns to the first choice. A choice that is listed twice is twice
// as likely.
type dimension struct {
	name    string
	choices []choice
}

// choice is one value; only checks the other choices that it requires, nil requires nothing.
type choice struct {
	value string
	only  func(limit, sender Traits) bool
}

func always(values ...string) (list []choice) {
	for _, v := range values {
		list = append(list, choice{value: v})
	}
	return list
}

func onlyIf(only func(limit, sender Traits) bool, values ...string) (list []choice) {
	for _, v := range values {
		list = append(list, choice{v, only})
	}
	return list
}

func stream(_, s Traits) bool {
	return s["kind"] == "tcp" || s["kind"] == "mptcp" || s["kind"] == "smc"
}
func isTCP(_, s Traits) bool    { return s["kind"] == "tcp" }
func datagram(_, s Traits) bool { return !stream(nil, s) }
func udp(_, s Traits) bool      { return s["kind"] == "udp" }
func ringSends(_, s Traits) bool {
	return stream(nil, s) || s["kind"] == "udp" || s["kind"] == "udplite"
}
func root(l, _ Traits) bool       { return l["user"] == "root" }
func rootsTCP(l, s Traits) bool   { return root(l, s) && isTCP(l, s) }
func manyPlaces(l, s Traits) bool { return datagram(l, s) && s["life"] != "wanders" }

// ringHasSocketAlone says whether a sender may close the descriptor of a socket that a ring has: no call but the ring's
// needs the descriptor then.
func ringHasSocketAlone(l, s Traits) bool {
	return ringSends(l, s) && s["life"] != "shares" && s["life"] != "wanders"
}

// fromElsewhere says whether a sender may bind its sockets to the address of another machine, which any program may do
// over IPv6.
func fromElsewhere(_, s Traits) bool {
	return !stream(nil, s) && s["family"] == "6" && (s["past"] == "none" || s["past"] == "reconnected")
}

func keepsOneSocket(_, s Traits) bool {
	return s["life"] == "keeps" || s["life"] == "shares" || s["life"] == "wanders"
}

// limits holds the dimensions of a program's limit.
var limits = limitsOf("up", "up", "total")

func limitsOf(directions ...string) []dimension {
	return []dimension{
		{"user", always("somebody", "somebody", "somebody", "root")},
		{"subject", slices.Concat(always("pid", "cgroup"), onlyIf(func(l, _ Traits) bool { return l["user"] != "root" }, "user"))},
		{"when", always("before", "connected", "sending")},
		{"then", always("stays", "lower", "raise", "again")},
		{"depth", always("0", "1", "14")},
		{"around", always("nothing", "cgroup")},
		{"direction", always(directions...)},
		// These are settings of both machines.
		{"network", always("usual", "usual", "usual", "ecn", "no_sack", "no_timestamps")},
	}
}

// hasOptionMemory reports whether the kernel can note what a stream sends without a copy: that takes the memory for a
// socket's options.
func hasOptionMemory(limit, sender Traits) bool {
	return stream(limit, sender) && sender["option"] != "md5_full" && sender["option2"] != "md5_full"
}

// These dimensions are the same for those that send and those that receive.
var (
	place = dimension{"place", slices.Concat(always("thread", "child", "late", "executed", "user_namespace"), onlyIf(keepsOneSocket, "network_namespace"), onlyIf(root, "other_user", "moved"),
		// A process that has left the tree before the limit is set does not belong to it.
		onlyIf(func(l, _ Traits) bool { return l["subject"] != "pid" || l["when"] != "sending" && l["then"] != "again" }, "orphan"))}
	past   = dimension{"past", slices.Concat(always("none", "bound", "reconnected"), onlyIf(ringSends, "elsewhere"), onlyIf(isTCP, "loopback", "listened"))}
	handle = dimension{"handle", slices.Concat(always("own"), onlyIf(keepsOneSocket, "high", "copied", "passed", "kept"))}
	beside = dimension{"beside", always("nothing", "nothing", "loopback", "namespace")}
)

// senders holds the dimensions of each thread or process that sends, in the order in which they are chosen.
var senders = []dimension{
	{"kind", slices.Concat(always("tcp", "tcp", "tcp", "tcp", "mptcp", "mptcp", "smc", "udp", "udp", "udplite", "ping"), onlyIf(root, "raw"))},
	{"family", always("4", "6", "mapped")},
	{"life", slices.Concat(always("keeps", "keeps", "closes", "ends", "crowd", "shares", "wanders"), onlyIf(stream, "aborts", "serves"))},
	place, past, handle,
	{"option", options},
	{"option2", options},
	{"call", slices.Concat(always("send", "msg", "sendmmsg"), onlyIf(stream, "more", "urgent", "file", "splice"), onlyIf(hasOptionMemory, "zerocopy"),
		onlyIf(datagram, "sendto"), onlyIf(manyPlaces, "many_peers"), onlyIf(udp, "segments"),
		onlyIf(ringSends, "ring", "ring_write", "ring_zerocopy"), onlyIf(ringHasSocketAlone, "ring_closed"))},
	{"bytes", slices.Concat(always("65536", "1", "100", "1400", "9000", "60000", "1048576"), onlyIf(stream, "1073741824"))},
	// "itself" is its own machine, whose kernel answers the other one.
	{"peer", slices.Concat(always("reads"), onlyIf(stream, "answers", "dawdles", "stalls", "resets", "small", "shrinks", "holes", "reorders", "duplicates"), onlyIf(fromElsewhere, "itself"))},
	{"afterwards", slices.Concat(always("nothing"), onlyIf(isTCP, "tls"), onlyIf(rootsTCP, "repaired"))},
	beside,
}

// options holds the options that a program sets on its sockets; it sets two.
var options = slices.Concat(always("none", "sndbuf_small", "sndbuf_large", "pacing_low", "pacing_high", "tos", "filter", "priority", "ip_options"),
	onlyIf(stream, "nodelay", "cork", "maxseg_100", "maxseg_536", "reno", "cubic", "bbr", "keepalive", "notsent_lowat", "user_timeout", "quickack", "fastopen"),
	onlyIf(isTCP, "md5_full"), onlyIf(datagram, "ecn_capable"))

// Most is the largest number of senders of a program.
const Most = 4

// New makes the program of a seed, which sends.
func New(seed uint64) Program { return random(Program{Seed: seed}) }

// NewReceiving makes the program of a seed that receives.
func NewReceiving(seed uint64) Program { return random(Program{Seed: seed, Receives: true}) }

func random(p Program) Program {
	r := rand.New(rand.NewPCG(p.Seed, 0x6e6e))
	limits, each := p.dimensions()
	p.Limit = Traits{}
	for _, d := range limits {
		p.Limit[d.name] = d.pick(r, p.Limit, nil)
	}
	for range 1 + r.IntN(Most) {
		s := Traits{}
		for _, d := range each {
			s[d.name] = d.pick(r, p.Limit, s)
		}
		p.Senders = append(p.Senders, s)
	}
	return p
}

// dimensions returns those of the limit of this program and those of each of its senders.
func (p Program) dimensions() (limit, each []dimension) {
	if p.Receives {
		return limitsReceived, receivers
	}
	return limits, senders
}

func (d dimension) pick(r *rand.Rand, limit, sender Traits) string {
	var fit []string
	for _, c := range d.choices {
		if c.only == nil || c.only(limit, sender) {
			fit = append(fit, c.value)
		}
	}
	return fit[r.IntN(len(fit))]
}

// valid says whether all choices are compatible.
func (p Program) valid() bool {
	fits := func(d dimension, t, limit, sender Traits) bool {
		return slices.ContainsFunc(d.choices, func(c choice) bool {
			return c.value == t[d.name] && (c.only == nil || c.only(limit, sender))
		})
	}
	limits, each := p.dimensions()
	for _, d := range limits {
		if !fits(d, p.Limit, p.Limit, nil) {
			return false
		}
	}
	for _, s := range p.Senders {
		for _, d := range each {
			if !fits(d, s, p.Limit, s) {
				return false
			}
		}
	}
	return len(p.Senders) > 0
}

// Any says whether a sender has one of these choices.
func (p Program) Any(name string, values ...string) bool {
	return slices.ContainsFunc(p.Senders, func(s Traits) bool { return slices.Contains(values, s[name]) })
}

// String lists the choices that differ from the simplest program.
func (p Program) String() string {
	var b strings.Builder
	limits, each := p.dimensions()
	p.Limit.write(&b, limits)
	for _, s := range p.Senders {
		b.WriteString(" |")
		s.write(&b, each)
	}
	return strings.TrimSpace(b.String())
}

func (t Traits) write(b *strings.Builder, all []dimension) {
	for i, d := range all {
		if i == 0 || t[d.name] != d.choices[0].value {
			b.WriteString(" " + d.name + "=" + t[d.name])
		}
	}
}

func (p Program) clone() Program {
	c := p
	c.Limit = maps.Clone(p.Limit)
	c.Senders = nil
	for _, s := range p.Senders {
		c.Senders = append(c.Senders, maps.Clone(s))
	}
	return c
}
