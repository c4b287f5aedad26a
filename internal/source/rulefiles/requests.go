package rulefiles

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/rules"
)

// List lists the administrator's rules and those of the caller; root sees everybody's.
func (s *Source) List(by auth.Actor) api.RuleList {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := api.RuleList{Version: api.Version, Followed: s.Follows(), Rules: []api.Rule{}, Problems: []api.RuleProblem{}}
	counts := s.opts.Host.LimitCounts()
	add := func(owner string, of *ownerFiles) {
		answer.Problems = append(answer.Problems, of.problemsFor(by)...)
		if of.set == nil {
			return
		}
		for _, r := range of.set.Rules() {
			shown := s.render(owner, r, counts)
			if of.uid == 0 {
				observe.HideConnections(by, r, &shown)
			}
			answer.Rules = append(answer.Rules, shown)
		}
	}
	add(api.OwnerAdmin, &s.system)
	for _, uid := range slices.Sorted(maps.Keys(s.users)) {
		if auth.Check(by, auth.ReadRules, auth.Target{UID: uid}) == nil {
			add(identity.UserName(uid), s.users[uid])
		}
	}
	return answer
}

// Reload reads the files again and lists the rules. The source looks at the files each second anyway. The caller of this
// wants to know that they are in force.
func (s *Source) Reload(ctx context.Context, by auth.Actor) (api.RuleList, error) {
	if !s.Follows() {
		return api.RuleList{}, s.noRules()
	}
	asked := asking{all: by.Root()}
	if asked.all {
		s.lookUpUsers(ctx) // before the lock, under which no call waits
	} else {
		asked.uid = &by.UID
		s.opts.Resolver.Accounts().Known(by.UID) // the next look has the home of a directory's user
	}
	s.reread(asked.uid)
	s.look(asked)
	return s.List(by), nil
}

func (s *Source) noRules() error {
	why, hint := "this daemon was started without a folder of rules, and follows none", "sudo netnice up --config-dir=/etc/netnice"
	if s.opts.OnDemand {
		why, hint = "this daemon was started on demand, which follows no rules", "sudo netnice up"
	}
	return &api.Error{Code: api.CodeConflict, Message: why, Hint: hint}
}

// problemsFor returns the errors in files of rules as a caller may see them.
func (r *ownerFiles) problemsFor(by auth.Actor) []api.RuleProblem {
	if r.hanging != "" {
		return append(slices.Clone(r.problems), hangs(r.hanging))
	}
	return observe.ShownProblems(by, r.uid, r.problems)
}

// render shows a rule; counts has the number of limits by each rule.
func (s *Source) render(owner string, r *rules.Rule, counts map[string]int) api.Rule {
	return api.Rule{
		RuleOrigin: *observe.ShownOrigin(r.Origin()),
		Owner:      owner, Conditions: r.Conditions(), Connections: r.Connections(),
		UpBytesPerSec: r.Limits.UpBytesPerSec, DownBytesPerSec: r.Limits.DownBytesPerSec, TotalBytesPerSec: r.Limits.TotalBytesPerSec,
		MinBytesPerSec: r.Limits.MinBytesPerSec, MinDownBytesPerSec: r.Limits.MinDownBytesPerSec, Weight: r.Limits.Weight, Share: string(r.Share), Also: r.Also, Active: r.Active(s.opts.Now()), Nodes: counts[r.Key()],
		AdaptSharePPM: r.Limits.AdaptSharePPM,
	}
}

// containerText names the container that a process is in, "" for none.
func containerText(c rules.Container) string {
	if len(c.Names) == 0 {
		return c.ID
	}
	return strings.Join(c.Names, ", ")
}

// Test says which rules match a process as it is now.
func (s *Source) Test(ctx context.Context, by auth.Actor, pid int) (api.RuleTest, error) {
	if !s.Follows() {
		return api.RuleTest{}, s.noRules()
	}
	res, err := s.opts.Resolver.Resolve(ctx, identity.PIDSubject(pid))
	if err != nil {
		return api.RuleTest{}, err
	}
	if res.Kind != enforce.KindTree {
		return api.RuleTest{}, &api.Error{
			Code: api.CodeBadRequest, Message: "no rule is for process 1, which stands for the host", Hint: "netnice show --host",
		}
	}
	if err := auth.Check(by, auth.TestRules, auth.Target{Subject: res.Subject, Kind: res.Kind, UID: res.UID}); err != nil {
		return api.RuleTest{}, err
	}
	pid = int(res.Key)
	p, ok := readProcess(s.opts.Resolver, pid)
	if !ok {
		return api.RuleTest{}, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", pid), Hint: "ps -e"}
	}
	p.Container()
	f := p.all()
	answer := api.RuleTest{
		Version: api.Version, PID: pid, Program: f.Exe, Name: f.Comm, User: identity.UserName(f.User),
		Command: f.CommandLine, Cgroup: f.Group, Container: containerText(f.In), Parent: f.ParentExe, Rules: []api.RuleVerdict{},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer.Rules = append(answer.Rules, s.verdicts(by, f)...)
	return answer, nil
}

// verdicts returns the result of each rule for a process with these facts. The caller holds s.mu.
func (s *Source) verdicts(by auth.Actor, f *desired.Facts) (list []api.RuleVerdict) {
	now := s.opts.Now()
	counts := s.opts.Host.LimitCounts()
	owners := [enforce.Owners]string{api.OwnerAdmin, identity.UserName(f.User)}
	for owner, set := range s.sets(f.User) {
		if set == nil {
			continue
		}
		holding, destined := set.Match(f, now)
		holds := slices.Concat(holding, destined)
		for _, r := range set.Rules() {
			differs := r.Differs(f, now)
			shown := s.render(owners[owner], r, counts)
			if enforce.Owner(owner) == enforce.OwnerAdmin && (differs != "" || !f.MayKnow(r)) {
				observe.HideConnections(by, r, &shown)
			}
			list = append(list, api.RuleVerdict{
				Rule: shown, Matches: differs == "", Differs: differs,
				Holds: slices.Contains(holds, r) || r.Everybody() && differs == "",
			})
		}
	}
	return list
}
