package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// Set implements apiserver.Backend.
func (d *Daemon) Set(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	answer, err := d.carry(ctx, d.setRequest(by, req))
	if req.DryRun {
		err = request.Rehearsed(err)
	}
	if err == nil && !req.DryRun && answer.Node != nil {
		d.readyFor(ctx, by, req.Subject, answer)
		answer.Warnings = append(answer.Warnings, d.observe.NoteStateless(answer.Node)...)
	}
	return answer, err
}

// setRequest returns the request in the form for its kind of subject.
func (d *Daemon) setRequest(by auth.Actor, req api.SetRequest) request.Steps[*transaction] {
	switch {
	case req.Leave:
		return d.groups.Leave(by, req)
	case req.Subject.Kind == api.KindGroup:
		return d.groups.Set(by, req)
	case req.Subject.Kind == api.KindTo:
		return d.destinations.Set(by, req, false)
	}
	return &subjectRequest{limitRequest: d.newLimitRequest(by, req)}
}

// subjectRequest sets a limit on all traffic of a subject: a process, user, cgroup, unit, container, link or the host.
// The limit of a process may be one on a scope, a cgroup that was made for the process.
type subjectRequest struct {
	limitRequest
	resolution
	own   *node // the node of the subject itself
	relay *identity.Relay
	place identity.Resolved // of the process in the scope that it is to have; the zero value = there will be none
	made  *node             // a scope that was made for this request

	hasScope bool // there was one already
}

// awaitsScope reports whether the process is to be in a scope. In a dry run, and for a limit that is only lifted, it stays
// where it is.
func (r *subjectRequest) awaitsScope() bool {
	return r.req.Scope && !r.DryRun && !(limit.Limit{}).Merge(r.req.Wish).Empty()
}

func (r *subjectRequest) Resolve(ctx context.Context) (err error) {
	if err := request.CheckOwned(r.By, auth.Set, r.req.Subject, r.req.Wish); err != nil {
		return err
	}
	r.d.learnLine(r.req.Wish)
	if err := r.resolve(ctx, r.d, r.req.Subject); err != nil {
		return err
	}
	r.relay = r.d.relayOf(r.By, r.req, r.res)
	if r.req.Scope && r.missing == nil && r.res.Kind == enforce.KindTree && !(limit.Limit{}).Merge(r.req.Wish).Empty() {
		if r.place, err = r.d.scopes.Place(r.res); err != nil {
			return err
		}
	}
	if r.req.Scope && !r.DryRun {
		return r.makeScope(ctx)
	}
	return nil
}

// makeScope makes the scope that the request asks for, unless something refuses the request, or there is one already.
// No other request waits for systemd meanwhile, except those for scopes.
func (r *subjectRequest) makeScope(ctx context.Context) error {
	d := r.d
	d.scopes.Lock()
	r.AtEnd = append(r.AtEnd, d.scopes.Unlock)
	// The process represents its scope for now, where the scope will be.
	if err := request.Rehearse(requestHost{d}, request.Steps[*transaction](r)); err != nil || r.IsAnswered || r.next.scope != nil || (limit.Limit{}).Merge(r.req.Wish).Empty() {
		r.hasScope = err == nil && r.next.scope != nil
		return err
	}
	res, sc, err := d.scopes.Enter(ctx, r.By, r.res)
	if err != nil {
		return err
	}
	r.made = &node{res: res, scope: sc, since: time.Now()}
	r.AtEnd = append(r.AtEnd, func() {
		if r.made != nil {
			d.leaveScope(r.made)
		}
	})
	return nil
}

func (r *subjectRequest) Find() (err error) {
	d := r.d
	if r.own, err = r.existing(d, r.req.Subject); err != nil {
		return err
	}
	n, fresh := r.own, node{res: r.res, since: time.Now()}
	if r.req.Scope {
		if r.res.Kind != enforce.KindTree {
			return request.Bad("netnice run --scope ... -- COMMAND", "scope: %s is not a running process", r.req.Subject)
		}
		have := d.scopeOf(r.res)
		switch {
		case have != nil:
			n = have
		case r.made != nil:
			n, fresh = nil, *r.made
		case r.hasScope:
			return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("the scope of %s has just ended", r.req.Subject), Hint: "run the command again"}
		case r.awaitsScope():
			n = nil
		}
	}
	r.begin(n, fresh)
	if r.IsMoved = n != nil && n.restarted(r.res); r.IsMoved {
		r.next.res = r.res
	}
	return nil
}

func (r *subjectRequest) Authorise() error {
	d, w := r.d, r.req.Wish
	if err := auth.Check(r.By, auth.Set, target(r.own, r.res, r.res.Subject, w)); err != nil {
		return err
	}
	if err := d.checkPersist(r.req, r.res, r.own); err != nil {
		return err
	}
	if r.req.Scope {
		if err := auth.Check(r.By, auth.Scope, target(nil, r.res, r.req.Subject, w)); err != nil {
			return err
		}
	}
	if r.node != r.own && r.node != nil {
		if err := auth.Check(r.By, auth.Set, target(r.node, r.node.res, r.req.Subject, w)); err != nil {
			return err
		}
	}
	return d.others(r.By, &r.next, r.req.Subject)
}

// atPlace calls a step with the process where its scope will be, unless there is one. Limits around the place count, and
// not those around the process now.
func (r *subjectRequest) atPlace(step func() error) error {
	if r.place.Kind == 0 || r.next.scope != nil {
		return step()
	}
	was := r.next.res
	r.next.res = r.place
	defer func() { r.next.res = was }()
	return step()
}

func (r *subjectRequest) Plan(tx *transaction) error {
	return r.atPlace(func() error { return r.limitRequest.Plan(tx) })
}

func (r *subjectRequest) Admit() error {
	if r.req.Scope && r.next.scope == nil { // the scope is a new node, also where the process has one
		if err := r.d.quota(r.By, true); err != nil {
			return err
		}
	}
	return r.atPlace(r.limitRequest.Admit)
}

func (r *subjectRequest) Apply(tx *transaction) error {
	if r.IsMoved {
		if err := tx.move(r.node, r.res); err != nil {
			return request.KernelError(r.req.Subject, err)
		}
	}
	if r.Answer.Changed {
		if err := r.apply(tx); err != nil {
			return request.KernelError(r.req.Subject, err)
		}
	}
	if !r.next.empty() {
		r.made = nil // it stays
	}
	return nil
}

func (r *subjectRequest) Finish() {
	if r.Answer.Changed && !r.DryRun {
		r.publish([]string{r.d.file.Path()}, r.logged()...)
	}
	if r.want.Empty() {
		r.Warn(ruleWarnings(r.next.Ruled, r.By.Owner())...)
	}
	if now := r.show(&r.next); r.Answer.Changed && r.Answer.Node != nil {
		r.Warn(request.PromisedWarnings(now, r.had, r.want)...)
	}
	r.Warn(request.RelayWarnings(r.relay, r.Answer.Node)...)
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
	list = append(list, request.Overruled(by.Owner(), req.Wish, next.Holding())...)
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

// others refuses to change the request of another user on a node: a process may have changed its user since. The caller
// holds d.mu.
func (d *Daemon) others(by auth.Actor, n *node, s api.Subject) error {
	if by.Root() || !n.usersWish() || n.userUID == by.UID {
		return nil
	}
	return auth.Check(by, auth.LiftOthers, auth.Target{Subject: s, Kind: n.res.Kind, UID: n.userUID})
}

func leaving() error {
	return &api.Error{Code: api.CodeConflict, Message: "the daemon is about to leave", Hint: "run the command again"}
}

// resolution is what a subject means now. It may be missing, as when its process has ended but children live on. Then the
// name by which the limit was set still works.
type resolution struct {
	res     identity.Resolved
	missing error
}

// resolve fails for any other reason.
func (of *resolution) resolve(ctx context.Context, d *Daemon, s api.Subject) error {
	if of.res, of.missing = d.resolver.Resolve(ctx, s); of.missing != nil && !identity.IsNotFound(of.missing) {
		return of.missing
	}
	return nil
}

// find returns the node of the subject, nil if it has none. The caller holds d.mu.
func (of *resolution) find(d *Daemon, s api.Subject) *node {
	if of.missing != nil {
		return d.nodes.FindName(d.resolver.Canonical(s))
	}
	return d.nodes.Find(of.res)
}

// existing is find for subjects that may have no node, unless they are missing.
func (of *resolution) existing(d *Daemon, s api.Subject) (*node, error) {
	n := of.find(d, s)
	switch {
	case of.missing == nil:
	case n == nil:
		return nil, of.missing
	default:
		of.res = n.res
	}
	return n, nil
}

// scopeOf returns the node of the scope that was made for a process.
func (d *Daemon) scopeOf(res identity.Resolved) *node {
	if res.Kind != enforce.KindTree {
		return nil
	}
	return d.nodes.ScopeOf(int(res.Key), res.StartBoottimeNS)
}

// target describes res, and the node on it if there is one, to auth.
func target(n *node, res identity.Resolved, asked api.Subject, w api.Wish) auth.Target {
	t := auth.Target{Subject: asked, Kind: res.Kind, UID: res.UID, Wish: w}
	if n != nil && n.scope != nil {
		t.UID = n.scope.UID
	}
	return t
}
