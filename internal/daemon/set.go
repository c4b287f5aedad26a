package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/shell"
)

// Set implements apiserver.Backend.
func (d *Daemon) Set(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	answer, err := d.setAny(ctx, by, req)
	if req.DryRun {
		err = rehearsed(err)
	}
	if err == nil && !req.DryRun && answer.Node != nil {
		d.readyFor(ctx, by, req.Subject, answer)
	}
	return answer, err
}

// rehearsed makes the command that an error recommends a dry run, if that repeats a refused one with more rights.
func rehearsed(err error) error {
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.CodeDenied || !strings.HasPrefix(refused.Hint, "sudo netnice set") {
		return err
	}
	again := *refused
	again.Hint += " --dry-run"
	return &again
}

// setAny implements Set for any kind of subject.
func (d *Daemon) setAny(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	group := req.Subject.Kind == api.KindGroup
	if len(req.Members) > 0 && !group {
		return api.SetResponse{}, badGroup("only a group has members")
	}
	if !group || req.Wish != (api.Wish{}) || len(req.Members) == 0 {
		if err := checkWish(by, req); err != nil {
			return api.SetResponse{}, err
		}
	}
	if err := checkFor(req); err != nil {
		return api.SetResponse{}, err
	}
	d.learnLine(req.Wish)
	switch {
	case req.Leave:
		return d.leaveGroup(ctx, by, req)
	case group:
		return d.setGroup(ctx, by, req)
	}
	if req.Subject.Kind == api.KindTo {
		return d.setToward(ctx, by, req, false)
	}
	if err := nobodys(by, auth.Set, req.Subject, req.Wish); err != nil {
		return api.SetResponse{}, err
	}
	res, resErr := d.resolver.Resolve(ctx, req.Subject)
	if resErr != nil && !identity.IsNotFound(resErr) {
		return api.SetResponse{}, resErr
	}
	relay := d.relayOf(by, req, res)
	lifted := false
	defer func() { d.drain(lifted) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return api.SetResponse{}, leaving()
	}
	n := d.find(res, req.Subject, resErr)
	if n == nil && resErr != nil {
		return api.SetResponse{}, resErr
	}
	if resErr != nil {
		res = n.res
	}
	if err := auth.Check(by, auth.Set, target(n, res, res.Subject, req.Wish)); err != nil {
		return api.SetResponse{}, err
	}
	if err := d.checkPersist(req, res, n); err != nil {
		return api.SetResponse{}, err
	}
	if n != nil && n.restarted(res) && !req.DryRun {
		if err := d.rebind(n, res); err != nil {
			return api.SetResponse{}, kernelError(req.Subject, err)
		}
	}
	var sc *desired.Scope
	if req.Scope {
		var err error
		if n, res, sc, err = d.scopeFor(ctx, by, req, n, res); err != nil {
			return api.SetResponse{}, err
		}
	}
	answer, err := d.setLocked(by, req, n, node{res: res, scope: sc, since: time.Now()})
	answer.Warnings = append(answer.Warnings, relayWarnings(relay, answer.Node)...)
	lifted = err == nil && answer.Changed && limit.LiftsOnly(req.Wish)
	if err != nil && sc != nil && n == nil {
		d.leaveScope(&node{res: res, scope: sc})
	}
	return answer, err
}

// setLocked stores one owner's requested limit on n, or on a new node.
func (d *Daemon) setLocked(by auth.Actor, req api.SetRequest, n *node, next node) (api.SetResponse, error) {
	answer := api.SetResponse{Version: api.Version}
	owner := by.Owner()
	if n != nil {
		next = *n
	}
	had, was := *next.place(owner, req), next.timed[owner]
	want := had.Merge(req.Wish)
	for _, link := range []*string{&want.Reserve.Link, &want.Grant.Link} {
		if *link != "" {
			*link = d.resolver.Canonical(api.Subject{Kind: api.KindLink, ID: *link}).ID
		}
	}
	if want.Empty() && had.Empty() && was == (desired.Timed{}) {
		if !limit.LiftsOnly(req.Wish) {
			return answer, &api.Error{
				Code:    api.CodeBadRequest,
				Message: fmt.Sprintf("%s has no limit of yours to which burst, loopback, the input meter or persist could apply: give a rate too", req.Subject),
				Hint:    "netnice set " + shell.Word(req.Subject.String()) + " --up 10MB/s",
			}
		}
		answer.Warnings = append(answer.Warnings, ruleWarnings(next.ruled, owner)...)
		if len(answer.Warnings) == 0 {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("no limit of yours stands on %s", req.Subject))
		}
		return answer, nil
	}
	if !next.asks(owner) {
		if err := d.quota(by, n == nil); err != nil {
			return answer, err
		}
	}
	if err := d.others(by, &next, req.Subject); err != nil {
		return answer, err
	}
	*next.place(owner, req) = want
	next.timeFrom(owner, req)
	if owner == enforce.OwnerUser {
		next.setUser(by.UID)
	}
	next.reserved = d.worth(next.holding().Reservation())
	if want.Reserve != had.Reserve {
		if err := d.checkReserve(by, &next); err != nil {
			return answer, err
		}
	}
	if want.Min > had.Min || want.Reserve != had.Reserve && next.reserved.link != 0 {
		if err := d.admit(&next, enforce.Up); err != nil {
			return answer, err
		}
	}
	if want.MinDown > had.MinDown {
		if err := d.admit(&next, enforce.Down); err != nil {
			return answer, err
		}
	}
	answer.Changed = n == nil || want != had || next.timed[owner] != was
	answer.Warnings = append(answer.Warnings, d.warnings(by, req, n, &next, want)...)
	if !req.DryRun && answer.Changed {
		var before *node
		if n != nil {
			was := *n
			before = &was
		}
		var err error
		if next.empty() {
			err = d.end(n)
		} else if n, err = d.commit(n, &next); err == nil {
			next = *n
		}
		if err != nil {
			return api.SetResponse{}, kernelError(req.Subject, err)
		}
		if next.res.Kind == enforce.KindLink {
			d.followReservations()
		}
		if want.Grant != had.Grant {
			d.followGrant(uint32(next.res.Key), cmp.Or(had.Grant.Link, want.Grant.Link))
		}
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.file.Path(), next.empty())...)
		d.tellSet(before, next.ifAny(), identity.OwnerName(by.Owner(), by.UID))
		d.log.Info("limit set", "subject", next.res.Subject.String(), "by", by.UID, "node", next.id,
			"up", want.Up, "down", want.Down, "total", want.Total, "weight", want.Weight, "min", want.Min, "min_down", want.MinDown, "slice", time.Duration(want.Reserve.SliceNS), "period", time.Duration(want.Reserve.PeriodNS))
	}
	if want.Empty() {
		answer.Warnings = append(answer.Warnings, ruleWarnings(next.ruled, owner)...)
	}
	if !next.empty() {
		now := d.lookAt(&next, req.DryRun)
		answer.Node = d.show(by, &next, now)
		if answer.Changed {
			answer.Warnings = append(answer.Warnings, promisedWarnings(now, had, want)...)
		}
	}
	return answer, nil
}

// end lifts a node that no owner requests any more.
func (d *Daemon) end(n *node) error {
	switch {
	case n.to != nil:
		return d.liftToward(n)
	case n.res.Subject.Kind == api.KindGroup:
		return d.dissolve(n)
	}
	return d.drop(n)
}

// warnings lists the effects that the caller may not expect.
func (d *Daemon) warnings(by auth.Actor, req api.SetRequest, old, next *node, want limit.Limit) (list []string) {
	if want.Down != 0 && want.Loopback && (req.Wish.DownBytesPerSec != nil || req.Wish.Loopback != nil) {
		list = append(list, "--loopback concerns what is sent: what comes from the machine itself is not limited by --down")
	}
	if req.Wish.Persist != nil && *req.Wish.Persist {
		if text := d.opts.AtBoot(); text != "" {
			list = append(list, "it comes back after a reboot as soon as a netnice daemon is started: "+text)
		}
	}
	list = append(list, d.guaranteeWarnings(req, next)...)
	list = append(list, d.weightWarnings(req, next)...)
	list = append(list, d.meterWarnings(req.Wish, want)...)
	list = append(list, overruled(by.Owner(), req.Wish, next)...)
	if next.res.Pending() {
		list = append(list, fmt.Sprintf("%s does not run; the limit holds as soon as it does", next.res.Subject))
	}
	if old != nil && old.scope == nil && old.res.Subject.Kind != req.Subject.Kind && old.res.Kind == enforce.KindCgroup {
		list = append(list, fmt.Sprintf("%s is the same cgroup as %s, whose limit was changed", req.Subject, old.res.Subject))
	}
	if req.Subject.Kind == api.KindPID && next.res.Kind == enforce.KindHost {
		list = append(list, "process 1 stands for the whole machine")
	}
	return list
}

// overruled warns of rates that have no effect, because another owner has set a lower one on the same subject.
func overruled(owner enforce.Owner, asked api.Wish, n *node) (list []string) {
	other, whose := enforce.OwnerAdmin, "the administrator's"
	if owner == enforce.OwnerAdmin {
		other, whose = enforce.OwnerUser, "the user's own"
	}
	holds := n.holding()[other]
	for _, of := range []struct {
		asked *uint64
		lower uint64
		what  string
	}{{asked.UpBytesPerSec, holds.Up, "up"}, {asked.DownBytesPerSec, holds.Down, "down"}, {asked.TotalBytesPerSec, holds.Total, "total"}} {
		if of.asked != nil && of.lower != 0 && *of.asked > of.lower {
			list = append(list, fmt.Sprintf("%s limit of %s %s is lower, and holds", whose, rateText(of.lower), of.what))
		}
	}
	if total := n.holding()[owner].Total; total != 0 && asked.TotalBytesPerSec == nil {
		for _, rate := range []*uint64{asked.UpBytesPerSec, asked.DownBytesPerSec} {
			if rate != nil && *rate > total {
				return append(list, fmt.Sprintf("the limit of %s for both directions together is lower, and holds; --total 0 lifts it", rateText(total)))
			}
		}
	}
	return list
}

// Down implements apiserver.Backend.
func (d *Daemon) Down(_ context.Context, by auth.Actor) error {
	if err := auth.Check(by, auth.Down, auth.Target{}); err != nil {
		return err
	}
	if err := d.bringDown(); err != nil && !d.down() {
		return err
	}
	d.log.Info("all limits lifted", "by", by.UID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.system = machineWide{}
	d.touchShared()
	return d.forget(stateFiles...) // a second time: its error names all that is left
}

// nobodys refuses subjects that no user owns, before anything is looked up for the user: a user may not learn which
// units and containers exist.
func nobodys(by auth.Actor, act auth.Action, s api.Subject, w api.Wish) error {
	if s.Kind != api.KindUnit && s.Kind != api.KindContainer {
		return nil
	}
	return auth.Check(by, act, auth.Target{Subject: s, Kind: enforce.KindHost, Wish: w})
}

// others refuses to change the request of another user on a node: a process may have changed its user since. The caller
// holds d.mu.
func (d *Daemon) others(by auth.Actor, n *node, s api.Subject) error {
	if by.Root() || !n.usersWish() || n.userUID == by.UID {
		return nil
	}
	return auth.Check(by, auth.LiftOthers, auth.Target{Subject: s, Kind: n.res.Kind, UID: n.userUID})
}

// drain waits, without the lock, until the kernel side has released everything that was lifted.
func (d *Daemon) drain(lifted bool) {
	if lifted {
		d.kernel.Drain()
	}
}

func leaving() error {
	return &api.Error{Code: api.CodeConflict, Message: "the daemon is about to leave", Hint: "run the command again"}
}

// kernelError tells a process that ended meanwhile from a fault.
func kernelError(s api.Subject, err error) error {
	switch {
	case errors.Is(err, enforce.ErrNotSupported):
		return &api.Error{Code: api.CodeNotSupported, Message: err.Error(), Hint: "netnice doctor", Cause: err}
	case errors.Is(err, enforce.ErrTooDeep):
		return &api.Error{Code: api.CodeConflict, Message: err.Error(), Hint: "lift one of those around it or in it: netnice ls, or limit the user: netnice set --user ...", Cause: err}
	case errors.Is(err, unix.ESRCH):
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("%s has ended", s), Hint: "ps -e", Cause: err}
	}
	return err
}

// find returns the node of a subject. The subject itself may be gone, as when its process has ended but children live
// on. Then the name by which the limit was set still works.
func (d *Daemon) find(res identity.Resolved, s api.Subject, resErr error) *node {
	if resErr != nil {
		return d.nodes.FindName(d.resolver.Canonical(s))
	}
	return d.nodes.Find(res)
}

// scopeOf returns the node of the scope that was made for a process.
func (d *Daemon) scopeOf(res identity.Resolved) *node {
	if res.Kind != enforce.KindTree {
		return nil
	}
	return d.nodes.ScopeOf(int(res.Key), res.StartBoottimeNS)
}

// scopeFor finds or makes the scope that a request asks for. With DryRun the process stays where it is, and represents
// its scope.
func (d *Daemon) scopeFor(ctx context.Context, by auth.Actor, req api.SetRequest, n *node, res identity.Resolved) (*node, identity.Resolved, *desired.Scope, error) {
	if res.Kind != enforce.KindTree {
		return nil, res, nil, &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("scope: %s is not a running process", req.Subject), Hint: "netnice run --scope ... -- COMMAND",
		}
	}
	if err := auth.Check(by, auth.Scope, target(nil, res, req.Subject, req.Wish)); err != nil {
		return nil, res, nil, err
	}
	if have := d.scopeOf(res); have != nil {
		if err := auth.Check(by, auth.Set, target(have, have.res, req.Subject, req.Wish)); err != nil {
			return nil, res, nil, err
		}
		return have, have.res, have.scope, nil
	}
	if err := d.quota(by, true); err != nil {
		return nil, res, nil, err
	}
	if req.DryRun || (limit.Limit{}).Merge(req.Wish).Empty() {
		return n, res, nil, nil
	}
	moved, sc, err := d.enterScope(ctx, by, res)
	return nil, moved, sc, err
}

// target describes res, and the node on it if there is one, to auth.
func target(n *node, res identity.Resolved, asked api.Subject, w api.Wish) auth.Target {
	t := auth.Target{Subject: asked, Kind: res.Kind, UID: res.UID, Wish: w}
	if n != nil && n.scope != nil {
		t.UID = n.scope.UID
	}
	return t
}
