package daemon

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// liftDestinationRequest lifts the limits on a destination: for a user their own, for root everybody's.
type liftDestinationRequest struct {
	exchange
	subject api.Subject
	list    []*node
	before  []node // copies of them
	others  bool   // there is a limit that the caller knows of, and that stays
}

func (r *liftDestinationRequest) resolve(ctx context.Context) error {
	p, err := r.d.partOf(ctx, r.by, auth.Remove, r.subject, api.Wish{})
	r.subject = p.subject
	return err
}

func (r *liftDestinationRequest) find() error {
	for _, n := range r.d.nodes.WithSubject(r.subject) {
		switch {
		case n.to == nil:
		case r.by.Root() || n.own() && n.userUID == r.by.UID:
			r.list, r.before = append(r.list, n), append(r.before, *n)
		default:
			r.others = r.others || n.record().DestinationIsFor(r.by)
		}
	}
	if len(r.list) == 0 && !r.others {
		return noLimit(r.subject)
	}
	return nil
}

func (r *liftDestinationRequest) authorise() error {
	if len(r.list) == 0 {
		return setByAdministrator(r.subject)
	}
	return nil
}

func (r *liftDestinationRequest) plan(*transaction) error {
	r.answer.Changed = true
	for _, n := range r.list {
		if n.own() && r.by.Root() {
			r.warn(fmt.Sprintf("the limit that %s had set was lifted", n.userName))
		}
	}
	if r.others {
		r.warn("the limit that the administrator set stays")
	}
	return nil
}

func (r *liftDestinationRequest) apply(tx *transaction) error {
	if err := tx.liftDestinations(r.list...); err != nil {
		return kernelError(r.subject, err)
	}
	return nil
}

func (r *liftDestinationRequest) finish() {
	if r.dryRun {
		return
	}
	r.lifted = true
	r.d.wakeEach()
	for i := range r.before {
		r.d.tellSet(&r.before[i], nil, r.whose())
		r.d.log.Info("limit lifted", "subject", r.subject.String(), "by", r.by.UID, "node", r.before[i].id)
	}
	r.warn(r.d.unwrittenWarnings(r.d.file.Path(), true)...)
}
