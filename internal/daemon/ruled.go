package daemon

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/rules"
)

// ruled is the request of rules for a node, by the owner of the rules. The zero value requests nothing. It is never
// changed in place, as copies share it.
type ruled struct {
	Owners [enforce.Owners]ruledWish `json:"owners"`
	// Facts exists only for files of version 3, in which all owners had the same facts.
	Facts *facts `json:"facts,omitempty"`
	// Shared is the key of a rule that has one limit for all matching processes, "" for a process's own node. Outer is
	// the tree around the node.
	Shared string `json:"shared,omitempty"`
	Outer  uint32 `json:"outer,omitempty"`
	// Destined is the number of the rule for a destination whose node this is; 0 for other nodes.
	Destined uint32 `json:"destined,omitempty"`
}

// ruledWish is the request of one owner's rules.
type ruledWish struct {
	Wish  limit.Limit                      `json:"wish"`
	From  [enforce.Directions]rules.Origin `json:"from"` // origin of each rate
	Rules []rules.Origin                   `json:"rules,omitempty"`
	// To holds the rules for a destination that match the process. Their limits are on nodes of their own: see
	// destined.go.
	To []rules.Origin `json:"to,omitempty"`
	// Facts holds the facts of the process when it matched the owner's rules. A program that another owner's rules
	// match must not change the requests of this owner's rules.
	Facts *facts `json:"facts,omitempty"`
}

// originShown returns the rule that a limit comes from for clients, nil if it comes from none.
func originShown(o rules.Origin) *api.RuleOrigin {
	if o.Key == "" {
		return nil
	}
	return &api.RuleOrigin{Name: o.Name, File: o.File, Line: o.Line}
}

func (r ruled) empty() bool {
	for _, o := range r.Owners {
		if !o.empty() {
			return false
		}
	}
	return true
}

func (w ruledWish) empty() bool { return len(w.Rules)+len(w.To) == 0 }

// has reports whether the node has a limit by this rule.
func (r ruled) has(key string) bool {
	for _, o := range r.Owners {
		is := func(from rules.Origin) bool { return from.Key == key }
		if slices.ContainsFunc(o.Rules, is) || slices.ContainsFunc(o.To, is) {
			return true
		}
	}
	return false
}

func (r ruled) same(o ruled) bool {
	for owner, a := range r.Owners {
		b := o.Owners[owner]
		if a.Wish != b.Wish || a.From != b.From || !slices.Equal(a.Rules, b.Rules) || !slices.Equal(a.To, b.To) {
			return false
		}
	}
	return true
}

// warnings say which rules stay when their owner lifts a limit by a command.
func (r ruled) warnings(owner enforce.Owner) (list []string) {
	for _, from := range r.Owners[owner].Rules {
		list = append(list, fmt.Sprintf("the limit of %s stays: change it there", from))
	}
	return list
}

// ruledWishOf combines rules: the lowest rate of each direction, the lowest weight and the highest guarantee hold. It
// leaves out rules that request none of these.
func ruledWishOf(list []*rules.Rule) (out ruledWish) {
	for _, r := range list {
		from, counts := r.Origin(), false
		lower := func(dir enforce.Direction, to *uint64, rate *uint64) {
			if rate == nil || *rate == 0 {
				return
			}
			counts = true
			if *to == 0 || *rate < *to {
				*to, out.From[dir] = *rate, from
			}
		}
		lower(enforce.Up, &out.Wish.Up, r.Limits.UpBytesPerSec)
		lower(enforce.Down, &out.Wish.Down, r.Limits.DownBytesPerSec)
		lower(enforce.Total, &out.Wish.Total, r.Limits.TotalBytesPerSec)
		if least := r.Limits.MinBytesPerSec; least != 0 {
			counts = true
			out.Wish.Min = max(out.Wish.Min, least)
		}
		if least := r.Limits.MinDownBytesPerSec; least != 0 {
			counts = true
			out.Wish.MinDown = max(out.Wish.MinDown, least)
		}
		if weight := r.Limits.Weight; weight != 0 {
			counts = true
			if out.Wish.Weight == 0 || weight < out.Wish.Weight {
				out.Wish.Weight = weight
			}
		}
		if counts {
			out.Rules = append(out.Rules, from)
		}
	}
	return out
}

// ruledWishWith adds the destination rules of a process, or of several processes if no facts are given.
func ruledWishWith(f *facts, holding, destined []*rules.Rule) ruledWish {
	out := ruledWishOf(holding)
	for _, r := range destined {
		from := r.Origin()
		from.OwnName = f == nil && !r.HoldsIn("") || f != nil && !f.mayKnow(r)
		out.To = append(out.To, from)
	}
	return out
}

// wants reports whether a rule requests something of a process's node.
func wants(r *rules.Rule) bool { return r.Destined() || len(ruledWishOf([]*rules.Rule{r}).Rules) > 0 }

// wishOf returns the request of one rule for a node.
func wishOf(r *rules.Rule) ruledWish {
	if r.Destined() {
		return ruledWishWith(nil, nil, []*rules.Rule{r})
	}
	return ruledWishOf([]*rules.Rule{r})
}

// sharedSubject returns the subject of a rule's node for all matching processes. It names no process, and an artificial
// start time tells such nodes apart.
func sharedSubject(r *rules.Rule, outer, uid uint32) identity.Resolved {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", r.Key(), outer)
	return identity.Resolved{
		Subject: api.Subject{Kind: api.KindRule, ID: r.Name}, Kind: enforce.KindTree, UID: uid, Name: "all of " + r.Name,
		StartBoottimeNS: (uint64(h.Sum32()) + 1) * identity.TickNS,
	}
}

// facts holds the properties of one process that rules compare. They are kept with a node, since the process may end
// before its children, or become another program.
type facts struct {
	Exe, Comm             string
	User                  uint32
	CommandLine           string
	Group                 string
	SystemGroup           string `json:",omitempty"` // the part of Group that no user has named; since version 11
	ParentExe, ParentComm string
	In                    rules.Container `json:",omitzero"`
}

var _ rules.Facts = facts{}

// mayKnow reports whether the process's user may see the destination of a matching administrator's rule. The user may
// not if the match comes from a name that the user may have chosen for that.
func (f facts) mayKnow(r *rules.Rule) bool { return r.MayHoldFor(f.User) || r.HoldsIn(f.SystemGroup) }

// Program implements rules.Facts.
func (f facts) Program() rules.Program { return rules.Program{Path: f.Exe, Comm: f.Comm} }

// Parent implements rules.Facts.
func (f facts) Parent() rules.Program { return rules.Program{Path: f.ParentExe, Comm: f.ParentComm} }

// UID implements rules.Facts.
func (f facts) UID() uint32 { return f.User }

// Command implements rules.Facts.
func (f facts) Command() string { return f.CommandLine }

// Cgroup implements rules.Facts.
func (f facts) Cgroup() string { return f.Group }

// Container implements rules.Facts.
func (f facts) Container() rules.Container { return f.In }

// running holds the facts of a running process. It reads the rarer ones only when a rule asks for them.
type running struct {
	resolver              *identity.Resolver
	pid, parent           int
	facts                 facts
	command, group, above bool // these facts are read
	inside                bool // the container is known
}

// look reads the facts that nearly every rule asks for. It returns false if the process has ended, or runs no program.
func look(r *identity.Resolver, pid int) (*running, bool) {
	p := &running{resolver: r, pid: pid}
	var err error
	if p.facts.Exe, p.facts.Comm, err = r.Program(pid); err != nil {
		return nil, false
	}
	if p.facts.User, p.parent, err = r.IDs(pid); err != nil {
		return nil, false
	}
	return p, true
}

// Program implements rules.Facts.
func (p *running) Program() rules.Program { return p.facts.Program() }

// UID implements rules.Facts.
func (p *running) UID() uint32 { return p.facts.User }

// Command implements rules.Facts. A command line that cannot be read any more is empty.
func (p *running) Command() string {
	if !p.command {
		p.command = true
		p.facts.CommandLine, _ = p.resolver.Command(p.pid)
	}
	return p.facts.CommandLine
}

// Cgroup implements rules.Facts.
func (p *running) Cgroup() string {
	if !p.group {
		p.group = true
		p.facts.Group, _ = p.resolver.ProcessCgroup(p.pid)
	}
	return p.facts.Group
}

// Parent implements rules.Facts.
func (p *running) Parent() rules.Program {
	if !p.above {
		p.above = true
		p.facts.ParentExe, p.facts.ParentComm, _ = p.resolver.Program(p.parent)
	}
	return p.facts.Parent()
}

// Container implements rules.Facts.
func (p *running) Container() rules.Container {
	if !p.inside {
		p.inside = true
		c := p.resolver.ContainerOf(p.Cgroup())
		p.facts.In = rules.Container{Names: c.Names, ID: c.ID}
	}
	return p.facts.In
}

// all reads all facts.
func (p *running) all() *facts {
	p.Command()
	p.Container()
	p.Parent()
	all := p.facts
	all.SystemGroup = p.resolver.SystemNamed(all.Group)
	return &all
}
