package daemon

import (
	"context"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/source/groups"
)

// exchange is what requests of all kinds have in common, here.
type exchange struct {
	request.Exchange
	d *Daemon
}

// whose names the caller in events.
func (e *exchange) whose() string { return identity.OwnerName(e.By.Owner(), e.By.UID) }

// requestHost is what requests need from the daemon.
type requestHost struct{ *Daemon }

// Lock implements request.Host, like Unlock and Drain.
func (h requestHost) Lock() { h.mu.Lock() }

func (h requestHost) Unlock() { h.mu.Unlock() }

func (h requestHost) Drain() { h.kernel.Drain() }

// Begin implements request.Host.
func (h requestHost) Begin() (*transaction, error) {
	if h.isDown {
		return nil, leaving()
	}
	return &transaction{d: h.Daemon}, nil
}

// carry carries out a request that sets or lifts limits, or none of it.
func (d *Daemon) carry(ctx context.Context, r request.Steps[*transaction]) (api.SetResponse, error) {
	return request.Carry[*transaction](ctx, requestHost{d}, r)
}

// edit is what a request makes of one node.
type edit struct {
	node   *node // nil = a new one
	before *node // a copy of it
	next   node
}

// begin starts from a node, or from a new one if node is nil.
func (c *edit) begin(n *node, fresh node) {
	if c.node, c.before, c.next = n, nil, fresh; n != nil {
		was := *n
		c.before, c.next = &was, *n
	}
}

// apply brings the node to its next state.
func (c *edit) apply(tx *transaction) error {
	n, err := tx.alter(c.node, &c.next)
	if err == nil && !c.next.empty() {
		c.done(n)
	}
	return err
}

// done notes the node as it is in force.
func (c *edit) done(n *node) { c.node, c.next = n, *n }

// limitRequest sets one owner's limit on one node. It has the steps that kinds of subjects share.
type limitRequest struct {
	exchange
	edit
	req       api.SetRequest
	subject   api.Subject // as messages name it
	example   string      // a command that sets a limit on it
	had, want limit.Limit
	was       desired.Timed
	isFirst   bool // the owner requests nothing of the node so far
}

// newLimitRequest returns what requests for a limit have in common.
func (d *Daemon) newLimitRequest(by auth.Actor, req api.SetRequest) limitRequest {
	return limitRequest{
		exchange: exchange{request.Exchange{By: by, DryRun: req.DryRun}, d}, req: req, subject: req.Subject,
		example: "netnice set " + shell.Word(req.Subject.String()) + " --up 10MB/s",
	}
}

func (r *limitRequest) Check() error {
	if len(r.req.Members) > 0 {
		return groups.Bad("only a group has members")
	}
	if err := request.CheckLimit(r.By, r.req); err != nil {
		return err
	}
	return request.CheckSpan(r.req)
}

func (r *limitRequest) Plan(*transaction) error {
	d, owner := r.d, r.By.Owner()
	place := r.next.place(owner, r.req)
	r.had, r.was = *place, r.next.Timed[owner]
	r.want = r.had.Merge(r.req.Wish)
	if asked := r.req.Wish.Reserve; asked != nil && asked.SliceNS != 0 {
		r.want.Reserve.End = desired.Now().In(asked.ForNS)
	}
	for _, link := range []*string{&r.want.Reserve.Link, &r.want.Grant.Link} {
		if *link != "" {
			*link = d.resolver.Canonical(api.Subject{Kind: api.KindLink, ID: *link}).ID
		}
	}
	if r.want.Empty() && r.had.Empty() && r.was == (desired.Timed{}) {
		return r.nothing(owner)
	}
	r.isFirst = !r.next.Asks(owner)
	*place = r.want
	r.next.timeFrom(owner, r.req)
	if owner == enforce.OwnerUser {
		r.next.setUser(r.By.UID)
	}
	r.next.Reserved = d.reservations.Worth(r.next.Holding().Reservation())
	r.Answer.Changed = r.node == nil || r.want != r.had || r.next.Timed[owner] != r.was
	r.Warn(d.warnings(r.By, r.req, r.node, &r.next, r.want)...)
	return nil
}

// nothing answers a request that finds no limit of the owner's, and names none.
func (r *limitRequest) nothing(owner enforce.Owner) error {
	if !limit.LiftsOnly(r.req.Wish) {
		return request.Bad(r.example, "%s has no limit of yours to which burst, loopback, the input meter or persist could apply: give a rate too", r.subject)
	}
	r.Warn(ruleWarnings(r.next.Ruled, owner)...)
	if len(r.Answer.Warnings) == 0 {
		r.Warn("no limit of yours stands on " + r.subject.String())
	}
	r.IsAnswered = true
	return nil
}

func (r *limitRequest) Admit() error {
	d := r.d
	if r.isFirst {
		if err := d.quota(r.By, r.node == nil); err != nil {
			return err
		}
	}
	if r.want.Reserve != r.had.Reserve {
		if err := d.reservations.Admit(r.By, r.next.forReservations()); err != nil {
			return err
		}
	}
	if r.want.Min > r.had.Min || r.want.Reserve != r.had.Reserve && r.next.Reserved.Link != 0 {
		if err := d.admit(&r.next, enforce.Up); err != nil {
			return err
		}
	}
	if r.want.MinDown > r.had.MinDown {
		return d.admit(&r.next, enforce.Down)
	}
	return nil
}

// publish says what is in force now: to the caller if it could not be written down, to those who hear events, and to
// the log, with what the kind of subject has to add. The files are those that the request has changed.
func (r *limitRequest) publish(files []string, more ...any) {
	r.HasLifted = limit.LiftsOnly(r.req.Wish) || r.next.empty()
	for _, file := range files {
		r.Warn(r.d.unwrittenWarnings(file, r.next.empty())...)
	}
	r.d.tellSet(r.before, r.next.ifAny(), r.whose())
	r.d.log.Info("limit set", append([]any{
		"subject", r.next.res.Subject.String(), "by", r.By.UID, "node", r.next.id, "up", r.want.Up, "down", r.want.Down, "total", r.want.Total,
	}, more...)...)
}

// logged is what the log adds about limits that only a subject as a whole can have.
func (r *limitRequest) logged() []any {
	slice := r.want.Reserve
	return []any{
		"weight", r.want.Weight, "min", r.want.Min, "min_down", r.want.MinDown,
		"slice", time.Duration(slice.SliceNS), "period", time.Duration(slice.PeriodNS),
	}
}

// show adds the node to the answer, as it is or would be, and returns the figures that it has shown.
func (e *exchange) show(n *node) (now observe.Sample) {
	if !n.empty() {
		now = e.d.lookAt(n, e.DryRun)
		e.Answer.Node = e.d.show(e.By, n, now)
	}
	return now
}
