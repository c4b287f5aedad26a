package destinations

import (
	"context"
	"net/netip"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/names"
)

// setRequest sets one owner's limit on a part of the traffic. Resolve asks for the rights, before it looks up names for
// the caller.
type setRequest[T Transaction] struct {
	Limit[T]
	source     *Source[T]
	by         auth.Actor
	req        api.SetRequest
	isObserved bool
	part       Part
	list       []netip.Prefix          // the content of the part's file, if it came with the request
	names      map[string]names.Answer // those that the source of names does not know yet
	began      time.Time
}

func (r *setRequest[T]) Check() error {
	if err := r.Limit.Check(); err != nil {
		return err
	}
	return checkSet(r.req)
}

func (r *setRequest[T]) Resolve(ctx context.Context) (err error) {
	if r.part, err = r.source.partOf(ctx, r.by, auth.Set, r.req.Subject, r.req.Wish); err == nil {
		err = r.part.missing
	}
	if err != nil {
		return err
	}
	if len(r.req.Prefixes) > 0 && r.part.Selector.List == "" {
		return destination.Refused("prefixes come with a subject that has a file: to:file:PATH")
	}
	if r.list, err = parsePrefixes(r.req.Prefixes); err != nil {
		return err
	}
	r.names, err = r.source.opts.Names.LookUpNew(ctx, r.part.Selector.Names)
	r.began = time.Now()
	return err
}

func (r *setRequest[T]) Find() error {
	if !r.source.IsBound() {
		return &api.Error{
			Code: api.CodeConflict, Message: "the files of rules are wrong, and what they said before about destinations stands until they are read",
			Hint: "netnice rules check; netnice rules reload",
		}
	}
	n := r.source.Own(r.part.Subject, r.by)
	if n.ID == 0 {
		n = r.part.Fresh(r.by)
	}
	r.Begin(r.part.Under, n)
	return nil
}

func (r *setRequest[T]) Plan(tx T) error {
	if err := r.Limit.Plan(tx); err != nil || r.Common().IsAnswered {
		return err
	}
	n := r.Node()
	if n.ID == 0 {
		r.source.learn(tx, r.names)
		n.Names, n.IsObserved = r.source.opts.Names.Addresses(n.Selector.Names), r.isObserved
		r.SetNode(n)
	}
	if len(r.list) > 0 {
		r.Common().Answer.Changed = true
	}
	if n.Selector.List == "" || r.IsLifted() {
		return nil
	}
	return r.source.opts.Lists.Take(tx, n.List, r.list)
}

// learn remembers the addresses of names that a new limit needs.
func (s *Source[T]) learn(tx T, answers map[string]names.Answer) {
	if len(answers) == 0 {
		return
	}
	undo := s.opts.Names.Learn(answers)
	s.host.SharedChanged()
	tx.OnFailure(func() error {
		undo()
		s.host.SharedChanged()
		return nil
	})
}

func (r *setRequest[T]) Admit() error {
	n := r.Node()
	if err := r.Limit.Admit(); err != nil || n.ID != 0 && len(r.list) == 0 {
		return err
	}
	return r.source.Admit(n, r.part)
}

func (r *setRequest[T]) Apply(tx T) error {
	return request.KernelError(r.part.Subject, r.apply(tx))
}

func (r *setRequest[T]) apply(tx T) error {
	n := r.Node()
	if r.IsLifted() {
		return r.source.Lift(tx, n.ID)
	}
	n.IsObserved = n.IsObserved && r.isObserved
	r.SetNode(n)
	if n.ID == 0 {
		return r.source.Add(tx, n, r.part, func(under uint32) error {
			n.Scope = under
			r.SetNode(n)
			return r.Limit.Apply(tx)
		})
	}
	if err := r.Limit.Apply(tx); err != nil || len(r.list) == 0 {
		return err
	}
	return r.source.assign(tx)
}

func (r *setRequest[T]) Finish() {
	if e := r.Common(); e.Answer.Changed && !e.DryRun && len(r.list) > 0 {
		e.Answer.LoadedPrefixes, e.Answer.LoadNS = len(r.list), uint64(time.Since(r.began))
		r.Wrote(r.source.opts.Lists.Path(r.Node().List))
	}
	r.Limit.Finish()
}
