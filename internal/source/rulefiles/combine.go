package rulefiles

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/rules"
)

// combine combines rules: the lowest rate of each direction, the lowest weight and the highest guarantee hold. It leaves
// out rules that request none of these.
func combine(list []*rules.Rule) (out desired.OwnerRules) {
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

// combineWith is combine with the rules for a part of the traffic of a process, or of several processes if no facts are
// given.
func combineWith(f *desired.Facts, holding, destined []*rules.Rule) desired.OwnerRules {
	out := combine(holding)
	for _, r := range destined {
		from := r.Origin()
		from.OwnName = f == nil && !r.HoldsIn("") || f != nil && !f.MayKnow(r)
		out.To = append(out.To, from)
	}
	return out
}

// limits reports whether a rule limits traffic by itself. One that does not may exempt a part of it.
func limits(r *rules.Rule) bool { return len(combine([]*rules.Rule{r}).Rules) > 0 }

// requested returns the request of one rule for a node.
func requested(r *rules.Rule) desired.OwnerRules {
	if r.Destined() {
		return combineWith(nil, nil, []*rules.Rule{r})
	}
	return combine([]*rules.Rule{r})
}

// Shared is a rule that has one limit for all processes that it matches.
type Shared struct {
	Owner   enforce.Owner
	Key     string // see rules.Rule.Key
	Name    string
	Request desired.OwnerRules
}

func shared(owner enforce.Owner, r *rules.Rule) Shared {
	return Shared{Owner: owner, Key: r.Key(), Name: r.Name, Request: requested(r)}
}

// Subject returns the subject of the rule's node inside the tree outer, 0 = in none. The argument uid is the user whose
// rule it is, 0 for the administrator's. It names no process, and an artificial start time tells such nodes apart.
func (r Shared) Subject(outer, uid uint32) identity.Resolved {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %d", r.Key, outer)
	return identity.Resolved{
		Subject: api.Subject{Kind: api.KindRule, ID: r.Name}, Kind: enforce.KindTree, UID: uid, Name: "all of " + r.Name,
		StartBoottimeNS: (uint64(h.Sum32()) + 1) * identity.TickNS,
	}
}

// isShared reports whether a rule has one limit for all processes that it matches.
func isShared(r *rules.Rule) bool { return r.Share == rules.ShareAll }

// without returns the rules of a list that are not left out.
func without(list []*rules.Rule, leftOut func(*rules.Rule) bool) []*rules.Rule {
	return slices.DeleteFunc(slices.Clone(list), leftOut)
}
