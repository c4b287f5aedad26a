package daemon

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/request"
)

// Remove implements apiserver.Backend. Root unsets every owner's limits, a user only their own.
func (d *Daemon) Remove(ctx context.Context, by auth.Actor, s api.Subject, dryRun bool) (api.SetResponse, error) {
	if s.Kind == api.KindTo {
		return d.carry(ctx, d.destinations.Remove(by, s, dryRun))
	}
	return d.carry(ctx, &liftRequest{exchange: exchange{request.Exchange{By: by, DryRun: dryRun}, d}, subject: s})
}

// liftRequest lifts the limits on all traffic of a subject, or on a group.
type liftRequest struct {
	exchange
	edit
	resolution
	subject api.Subject
}

func (r *liftRequest) Resolve(ctx context.Context) error {
	if err := request.CheckOwned(r.By, auth.Remove, r.subject, api.Wish{}); err != nil {
		return err
	}
	return r.resolve(ctx, r.d, r.subject)
}

func (r *liftRequest) Find() error {
	n, err := r.existing(r.d, r.subject)
	if err != nil {
		return err
	}
	if n == nil || !n.IsCommanded() && n.Ruled.Empty() {
		if n = r.d.scopeOf(r.res); n == nil {
			return request.NoLimit(r.subject)
		}
	}
	r.begin(n, node{})
	return nil
}

func (r *liftRequest) Authorise() error {
	n := r.node
	if err := auth.Check(r.By, auth.Remove, target(n, n.res, r.subject, api.Wish{})); err != nil {
		return err
	}
	switch {
	case r.By.Root(), !n.IsCommanded():
		return nil
	case !n.Asks(enforce.OwnerUser):
		return request.SetByAdministrator(r.subject)
	}
	return r.d.others(r.By, n, r.subject)
}

func (r *liftRequest) Plan(*transaction) error {
	n, next := r.node, &r.next
	switch r.Answer.Changed = n.IsCommanded(); {
	case !r.Answer.Changed: // every limit is from a rule
	case r.By.Root():
		next.Requested, next.Timed = limit.Owners{}, [enforce.Owners]desired.Timed{}
		if n.Asks(enforce.OwnerUser) {
			r.Warn(fmt.Sprintf("the limit that %s had set was lifted too", n.userName))
		}
	default:
		next.Requested[enforce.OwnerUser], next.Timed[enforce.OwnerUser] = limit.Limit{}, desired.Timed{}
		if n.Asks(enforce.OwnerAdmin) {
			r.Warn("the limit that the administrator set stays")
		}
	}
	next.Reserved = r.d.reservations.Worth(next.Holding().Reservation())
	return nil
}

func (r *liftRequest) Apply(tx *transaction) error {
	return request.KernelError(r.subject, r.apply(tx))
}

func (r *liftRequest) Finish() {
	if r.Answer.Changed && !r.DryRun {
		r.HasLifted = true
		r.Warn(r.d.unwrittenWarnings(r.d.file.Path(), true)...)
		r.d.tellSet(r.before, r.next.ifAny(), r.whose())
		r.d.log.Info("limit lifted", "subject", r.node.res.Subject.String(), "by", r.By.UID, "node", r.node.id)
	}
	for owner := range r.next.Ruled.Owners {
		r.Warn(ruleWarnings(r.next.Ruled, enforce.Owner(owner))...)
	}
	r.show(&r.next)
}
