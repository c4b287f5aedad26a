package destinations

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/request"
)

// liftRequest lifts the limits on a part of the traffic: for a user their own, for root everybody's.
type liftRequest[T Transaction] struct {
	request.Exchange
	source  *Source[T]
	subject api.Subject
	list    []Node
	publish []func()
	others  bool // there is a limit that the caller knows of, and that stays
}

func (r *liftRequest[T]) Resolve(ctx context.Context) error {
	p, err := r.source.partOf(ctx, r.By, auth.Remove, r.subject, api.Wish{})
	r.subject = p.Subject
	return err
}

func (r *liftRequest[T]) Find() error {
	host := r.source.host
	for _, n := range host.Named(r.subject) {
		if r.By.Root() || n.OnlyUser && n.User == r.By.UID {
			r.list, r.publish = append(r.list, n), append(r.publish, host.Lifted(r.By, n.ID))
		} else {
			r.others = r.others || host.MaySee(r.By, n.ID)
		}
	}
	if len(r.list) == 0 && !r.others {
		return request.NoLimit(r.subject)
	}
	return nil
}

func (r *liftRequest[T]) Authorise() error {
	if len(r.list) == 0 {
		return request.SetByAdministrator(r.subject)
	}
	return nil
}

func (r *liftRequest[T]) Plan(T) error {
	r.Answer.Changed = true
	for _, n := range r.list {
		if n.OnlyUser && r.By.Root() {
			r.Warn(fmt.Sprintf("the limit that %s had set was lifted", n.UserName))
		}
	}
	if r.others {
		r.Warn("the limit that the administrator set stays")
	}
	return nil
}

func (r *liftRequest[T]) Apply(tx T) error {
	ids := make([]uint32, len(r.list))
	for i, n := range r.list {
		ids[i] = n.ID
	}
	return request.KernelError(r.subject, r.source.Lift(tx, ids...))
}

func (r *liftRequest[T]) Finish() {
	if r.DryRun {
		return
	}
	r.HasLifted = true
	r.source.host.WakePeers()
	for _, publish := range r.publish {
		publish()
	}
	r.Warn(r.source.host.Unwritten(true)...)
}
