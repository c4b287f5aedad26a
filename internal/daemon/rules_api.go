package daemon

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

// Rules implements apiserver.Backend. It lists the administrator's rules and those of the caller; root sees
// everybody's.
func (d *Daemon) Rules(_ context.Context, by auth.Actor) (api.RuleList, error) {
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	return d.listRules(by), nil
}

// ReloadRules implements apiserver.Backend. The daemon looks at the files each second anyway. The caller of this wants
// to know that they are in force.
func (d *Daemon) ReloadRules(ctx context.Context, by auth.Actor) (api.RuleList, error) {
	if !d.followsRules() {
		return api.RuleList{}, noRules()
	}
	asked := asking{all: by.Root()}
	if asked.all {
		d.lookUpRuleUsers(ctx) // before the lock, under which no call waits
	} else {
		asked.uid = &by.UID
		d.resolver.Accounts().Known(by.UID) // the next look has the home of a directory's user
	}
	d.rereadRules(asked.uid)
	d.lookAtRules(asked)
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	return d.listRules(by), nil
}

func noRules() error {
	return &api.Error{
		Code:    api.CodeConflict,
		Message: "this daemon was started on demand, which follows no rules", Hint: "sudo netnice up",
	}
}

func (d *Daemon) listRules(by auth.Actor) api.RuleList {
	answer := api.RuleList{Version: api.Version, Followed: d.followsRules(), Rules: []api.Rule{}, Problems: []api.RuleProblem{}}
	standing := d.standing()
	add := func(owner string, b *book) {
		answer.Problems = append(answer.Problems, b.problemsFor(by)...)
		if b.set == nil {
			return
		}
		for _, r := range b.set.Rules() {
			shown := d.renderRule(owner, r, standing)
			if b.owner == 0 {
				observe.HideConnections(by, r, &shown)
			}
			answer.Rules = append(answer.Rules, shown)
		}
	}
	add(api.OwnerAdmin, &d.rules.system)
	for _, uid := range slices.Sorted(maps.Keys(d.rules.users)) {
		if auth.Check(by, auth.ReadRules, auth.Target{UID: uid}) == nil {
			add(identity.UserName(uid), d.rules.users[uid])
		}
	}
	return answer
}

// problemsFor returns the errors in files of rules as a caller may see them.
func (b *book) problemsFor(by auth.Actor) []api.RuleProblem {
	if b.hanging != "" {
		return append(slices.Clone(b.problems), hangs(b.hanging))
	}
	return observe.ShownProblems(by, b.owner, b.problems)
}

// standing counts the nodes that have a limit by each rule, by key.
func (d *Daemon) standing() map[string]int {
	count := d.observe.Snapshot().RuleCounts()
	for _, key := range d.adaptation.RuledHosts() {
		count[key]++
	}
	return count
}

func (d *Daemon) renderRule(owner string, r *rules.Rule, standing map[string]int) api.Rule {
	return api.Rule{
		RuleOrigin: api.RuleOrigin{Name: r.Name, File: r.File, Line: r.Line},
		Owner:      owner, Conditions: r.Conditions(), Connections: r.Connections(),
		UpBytesPerSec: r.Limits.UpBytesPerSec, DownBytesPerSec: r.Limits.DownBytesPerSec, TotalBytesPerSec: r.Limits.TotalBytesPerSec,
		MinBytesPerSec: r.Limits.MinBytesPerSec, MinDownBytesPerSec: r.Limits.MinDownBytesPerSec, Weight: r.Limits.Weight, Share: string(r.Share), Also: r.Also, Active: r.Active(d.now()), Nodes: standing[r.Key()],
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

// TestRules implements apiserver.Backend. It says which rules match a process as it is now.
func (d *Daemon) TestRules(ctx context.Context, by auth.Actor, pid int) (api.RuleTest, error) {
	if !d.followsRules() {
		return api.RuleTest{}, noRules()
	}
	res, err := d.resolver.Resolve(ctx, identity.PIDSubject(pid))
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
	p, ok := look(d.resolver, pid)
	if !ok {
		return api.RuleTest{}, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("process %d has ended", pid), Hint: "ps -e"}
	}
	f := p.all()
	answer := api.RuleTest{
		Version: api.Version, PID: pid, Program: f.Exe, Name: f.Comm, User: identity.UserName(f.User),
		Command: f.CommandLine, Cgroup: f.Group, Container: containerText(f.In), Parent: f.ParentExe, Rules: []api.RuleVerdict{},
	}
	d.rules.mu.Lock()
	defer d.rules.mu.Unlock()
	answer.Rules = append(answer.Rules, d.verdicts(by, f)...)
	return answer, nil
}

// verdicts returns the result of each rule for a process with these facts. The caller holds d.rules.mu.
func (d *Daemon) verdicts(by auth.Actor, f *desired.Facts) (list []api.RuleVerdict) {
	now := d.now()
	standing := d.standing()
	owners := [enforce.Owners]string{api.OwnerAdmin, identity.UserName(f.User)}
	for owner, set := range d.rules.sets(f.User) {
		if set == nil {
			continue
		}
		holding, destined := set.Match(f, now)
		holds := slices.Concat(holding, destined)
		for _, r := range set.Rules() {
			differs := r.Differs(f, now)
			shown := d.renderRule(owners[owner], r, standing)
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
