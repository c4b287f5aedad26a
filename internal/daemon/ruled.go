package daemon

import (
	"fmt"
	"hash/fnv"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// originShown returns the rule that a limit comes from for clients, nil if it comes from none.
func originShown(o rules.Origin) *api.RuleOrigin {
	if o.Key == "" {
		return nil
	}
	return &api.RuleOrigin{Name: o.Name, File: o.File, Line: o.Line}
}

// ruleWarnings say which rules stay when their owner lifts a limit by a command.
func ruleWarnings(r desired.Rules, owner enforce.Owner) (list []string) {
	for _, from := range r.Owners[owner].Rules {
		list = append(list, fmt.Sprintf("the limit of %s stays: change it there", from))
	}
	return list
}

// ruledWishOf combines rules: the lowest rate of each direction, the lowest weight and the highest guarantee hold. It
// leaves out rules that request none of these.
func ruledWishOf(list []*rules.Rule) (out desired.OwnerRules) {
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
func ruledWishWith(f *desired.Facts, holding, destined []*rules.Rule) desired.OwnerRules {
	out := ruledWishOf(holding)
	for _, r := range destined {
		from := r.Origin()
		from.OwnName = f == nil && !r.HoldsIn("") || f != nil && !f.MayKnow(r)
		out.To = append(out.To, from)
	}
	return out
}

// wants reports whether a rule requests something of a process's node.
func wants(r *rules.Rule) bool { return r.Destined() || len(ruledWishOf([]*rules.Rule{r}).Rules) > 0 }

// wishOf returns the request of one rule for a node.
func wishOf(r *rules.Rule) desired.OwnerRules {
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

// running holds the facts of a running process. It reads the rarer ones only when a rule asks for them.
type running struct {
	resolver              *identity.Resolver
	pid, parent           int
	facts                 desired.Facts
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
func (p *running) all() *desired.Facts {
	p.Command()
	p.Container()
	p.Parent()
	all := p.facts
	all.SystemGroup = p.resolver.SystemNamed(all.Group)
	return &all
}
