package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/observe"
	"github.com/netnice/netnice/internal/shell"
)

// request is a request to set or lift limits. All of them go one way (change). A kind of subject differs in these steps,
// which change calls in this order.
type request interface {
	common() *exchange
	// check refuses settings that no subject of the kind can have. It reads nothing but the request.
	check() error
	// resolve finds out all that takes long: names, D-Bus, /proc, files. It takes the lock for moments only.
	resolve(ctx context.Context) error

	// The lock is held from here on. find finds the nodes that the request is about.
	find() error
	// authorise refuses callers who may not do that.
	authorise() error
	// plan computes what the nodes become, and the warnings. It changes nothing but names and lists of prefixes, in the
	// transaction. If nothing is to be done, it completes the answer.
	plan(tx *transaction) error
	// admit refuses a plan beyond a quota, or beyond what a limit around has to give.
	admit() error
	// apply brings the plan into force. A dry run leaves it out.
	apply(tx *transaction) error
	// finish completes the answer.
	finish()
}

// exchange is what requests of all kinds have in common: the caller, and the answer so far.
type exchange struct {
	d          *Daemon
	by         auth.Actor
	dryRun     bool
	answer     api.SetResponse
	isAnswered bool     // nothing is to be done
	lifted     bool     // the kernel side has something to release
	atEnd      []func() // called without the lock, the last first
}

func (e *exchange) common() *exchange { return e }

func (e *exchange) check() error { return nil }

func (e *exchange) admit() error { return nil }

// whose names the caller in events.
func (e *exchange) whose() string { return identity.OwnerName(e.by.Owner(), e.by.UID) }

func (e *exchange) warn(texts ...string) { e.answer.Warnings = append(e.answer.Warnings, texts...) }

// change carries out a request that sets or lifts limits, or none of it. A dry run is the same without apply.
func (d *Daemon) change(ctx context.Context, r request) (api.SetResponse, error) {
	none, e := api.SetResponse{}, r.common()
	if err := r.check(); err != nil {
		return none, err
	}
	defer func() {
		for _, end := range slices.Backward(e.atEnd) {
			end()
		}
		d.drain(e.lifted)
	}()
	if err := r.resolve(ctx); err != nil {
		return none, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	tx := &transaction{d: d}
	if err := d.prepare(r, tx); err != nil {
		return none, tx.rollBack(err)
	}
	if e.isAnswered {
		return e.answer, tx.rollBack(nil)
	}
	if e.dryRun || !e.answer.Changed {
		r.finish()
		return e.answer, tx.rollBack(nil)
	}
	if err := r.apply(tx); err != nil {
		return none, tx.rollBack(err)
	}
	tx.commit()
	r.finish()
	return e.answer, nil
}

// prepare runs the steps up to the point at which nothing refuses the request any more. The caller holds d.mu.
func (d *Daemon) prepare(r request, tx *transaction) error {
	if d.isDown {
		return leaving()
	}
	e := r.common()
	e.answer, e.isAnswered = api.SetResponse{Version: api.Version}, false
	if err := r.find(); err != nil {
		return err
	}
	if err := r.authorise(); err != nil {
		return err
	}
	if err := r.plan(tx); err != nil || e.isAnswered {
		return err
	}
	return r.admit()
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
		exchange: exchange{d: d, by: by, dryRun: req.DryRun}, req: req, subject: req.Subject,
		example: "netnice set " + shell.Word(req.Subject.String()) + " --up 10MB/s",
	}
}

func (r *limitRequest) check() error {
	if len(r.req.Members) > 0 {
		return badGroup("only a group has members")
	}
	if err := checkWish(r.by, r.req); err != nil {
		return err
	}
	return checkFor(r.req)
}

func (r *limitRequest) plan(*transaction) error {
	d, owner := r.d, r.by.Owner()
	place := r.next.place(owner, r.req)
	r.had, r.was = *place, r.next.timed[owner]
	r.want = r.had.Merge(r.req.Wish)
	for _, link := range []*string{&r.want.Reserve.Link, &r.want.Grant.Link} {
		if *link != "" {
			*link = d.resolver.Canonical(api.Subject{Kind: api.KindLink, ID: *link}).ID
		}
	}
	if r.want.Empty() && r.had.Empty() && r.was == (desired.Timed{}) {
		return r.nothing(owner)
	}
	r.isFirst = !r.next.asks(owner)
	*place = r.want
	r.next.timeFrom(owner, r.req)
	if owner == enforce.OwnerUser {
		r.next.setUser(r.by.UID)
	}
	r.next.reserved = d.worth(r.next.holding().Reservation())
	r.answer.Changed = r.node == nil || r.want != r.had || r.next.timed[owner] != r.was
	r.warn(d.warnings(r.by, r.req, r.node, &r.next, r.want)...)
	return nil
}

// nothing answers a request that finds no limit of the owner's, and names none.
func (r *limitRequest) nothing(owner enforce.Owner) error {
	if !limit.LiftsOnly(r.req.Wish) {
		return badRequest(r.example, "%s has no limit of yours to which burst, loopback, the input meter or persist could apply: give a rate too", r.subject)
	}
	r.warn(ruleWarnings(r.next.ruled, owner)...)
	if len(r.answer.Warnings) == 0 {
		r.warn("no limit of yours stands on " + r.subject.String())
	}
	r.isAnswered = true
	return nil
}

func (r *limitRequest) admit() error {
	d := r.d
	if r.isFirst {
		if err := d.quota(r.by, r.node == nil); err != nil {
			return err
		}
	}
	if r.want.Reserve != r.had.Reserve {
		if err := d.checkReserve(r.by, &r.next); err != nil {
			return err
		}
	}
	if r.want.Min > r.had.Min || r.want.Reserve != r.had.Reserve && r.next.reserved.link != 0 {
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
	r.lifted = limit.LiftsOnly(r.req.Wish) || r.next.empty()
	for _, file := range files {
		r.warn(r.d.unwrittenWarnings(file, r.next.empty())...)
	}
	r.d.tellSet(r.before, r.next.ifAny(), r.whose())
	r.d.log.Info("limit set", append([]any{
		"subject", r.next.res.Subject.String(), "by", r.by.UID, "node", r.next.id, "up", r.want.Up, "down", r.want.Down, "total", r.want.Total,
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
		now = e.d.lookAt(n, e.dryRun)
		e.answer.Node = e.d.show(e.by, n, now)
	}
	return now
}
