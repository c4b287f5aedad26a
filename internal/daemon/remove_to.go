package daemon

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/request"
)

// liftDestinationRequest lifts the limits on a destination: for a user their own, for root everybody's.
type liftDestinationRequest struct {
	exchange
	subject api.Subject
	list    []*node
	before  []node // copies of them
	others  bool   // there is a limit that the caller knows of, and that stays
}

func (r *liftDestinationRequest) Resolve(ctx context.Context) error {
	p, err := r.d.partOf(ctx, r.By, auth.Remove, r.subject, api.Wish{})
	r.subject = p.subject
	return err
}

func (r *liftDestinationRequest) Find() error {
	for _, n := range r.d.nodes.WithSubject(r.subject) {
		switch {
		case n.to == nil:
		case r.By.Root() || n.IsOnlyUsers() && n.userUID == r.By.UID:
			r.list, r.before = append(r.list, n), append(r.before, *n)
		default:
			r.others = r.others || n.record().DestinationIsFor(r.By)
		}
	}
	if len(r.list) == 0 && !r.others {
		return noLimit(r.subject)
	}
	return nil
}

func (r *liftDestinationRequest) Authorise() error {
	if len(r.list) == 0 {
		return setByAdministrator(r.subject)
	}
	return nil
}

func (r *liftDestinationRequest) Plan(*transaction) error {
	r.Answer.Changed = true
	for _, n := range r.list {
		if n.IsOnlyUsers() && r.By.Root() {
			r.Warn(fmt.Sprintf("the limit that %s had set was lifted", n.userName))
		}
	}
	if r.others {
		r.Warn("the limit that the administrator set stays")
	}
	return nil
}

func (r *liftDestinationRequest) Apply(tx *transaction) error {
	return request.KernelError(r.subject, tx.liftDestinations(r.list...))
}

func (r *liftDestinationRequest) Finish() {
	if r.DryRun {
		return
	}
	r.HasLifted = true
	r.d.wakeEach()
	for i := range r.before {
		r.d.tellSet(&r.before[i], nil, r.whose())
		r.d.log.Info("limit lifted", "subject", r.subject.String(), "by", r.By.UID, "node", r.before[i].id)
	}
	r.Warn(r.d.unwrittenWarnings(r.d.file.Path(), true)...)
}
