package daemon

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
	"github.com/netnice/netnice/internal/source/names"
)

// part is the destination that a request names, and the subject that the traffic belongs to.
type part struct {
	subject  api.Subject // in its canonical form
	selector destination.Selector
	under    identity.Resolved // kind host = everybody's traffic
	missing  error             // error if there is no such process, user or cgroup
}

func (p part) everybody() bool { return p.under.Kind == enforce.KindHost }

// lasting returns a subject whose text stays the same. For a user whose name is not in the files it is the number,
// since the name is known only after a look-up.
func (d *Daemon) lasting(r identity.Resolved) api.Subject {
	if r.Kind == enforce.KindUser && !d.resolver.Accounts().InFiles(r.Subject.ID) {
		return api.Subject{Kind: api.KindUser, ID: strconv.FormatUint(r.Key, 10)}
	}
	return r.Subject
}

// partOf parses a subject of the kind "to" in a request of an actor.
func (d *Daemon) partOf(ctx context.Context, by auth.Actor, act auth.Action, s api.Subject, w api.Wish) (p part, err error) {
	selector, under, err := destination.Parse(s.ID)
	if err != nil {
		return p, destination.Refused("%v", err)
	}
	if under == (api.Subject{}) {
		under = identity.Host().Subject
		if !by.Root() {
			under = identity.User(by.UID).Subject
		}
	}
	switch under.Kind {
	case api.KindLink, api.KindGroup, api.KindRule, api.KindTo:
		return p, destination.Refused("%s: a part of the traffic is of the host, or of a process, user, cgroup, unit or container", under)
	}
	if err := nobodys(by, act, under, w); err != nil {
		return p, err
	}
	p.selector = selector
	p.under, err = d.resolver.Resolve(ctx, under)
	if identity.IsNotFound(err) {
		p.missing = err
		p.under = identity.Resolved{Subject: d.resolver.Canonical(under)}
	} else if err != nil {
		return p, err
	}
	p.subject = selector.Subject(d.lasting(p.under))
	if p.everybody() {
		p.subject = selector.Subject(api.Subject{})
	}
	if p.missing == nil {
		return p, auth.Check(by, act, target(nil, p.under, p.subject, w))
	}
	return p, nil
}

// toward finds the node of an owner for a destination. The caller holds d.mu.
func (d *Daemon) toward(s api.Subject, owner enforce.Owner, uid uint32) *node {
	for _, n := range d.nodes.WithSubject(s) {
		if n.to != nil && n.owner() == owner && (owner == enforce.OwnerAdmin || n.userUID == uid) {
			return n
		}
	}
	return nil
}

// destinationRequest sets one owner's limit for a destination.
type destinationRequest struct {
	limitRequest
	met   bool // no owner has named the destination: it is an address to which a program has sent
	part  part
	list  []netip.Prefix          // the content of the destination's file, if it came with the request
	names map[string]names.Answer // those that the daemon does not know yet
	began time.Time
}

func newDestinationRequest(of limitRequest, met bool) *destinationRequest {
	return &destinationRequest{limitRequest: of, met: met}
}

func (r *destinationRequest) Check() error {
	if err := r.limitRequest.Check(); err != nil {
		return err
	}
	return request.CheckDestination(r.req)
}

func (r *destinationRequest) Resolve(ctx context.Context) (err error) {
	if r.part, err = r.d.partOf(ctx, r.By, auth.Set, r.req.Subject, r.req.Wish); err == nil {
		err = r.part.missing
	}
	if err != nil {
		return err
	}
	r.subject, r.example = r.part.subject, destination.Example
	if len(r.req.Prefixes) > 0 && r.part.selector.List == "" {
		return destination.Refused("prefixes come with a subject that has a file: to:file:PATH")
	}
	if r.list, err = request.Prefixes(r.req.Prefixes); err != nil {
		return err
	}
	r.names, err = r.d.names.LookUpNew(ctx, r.part.selector.Names)
	r.began = time.Now()
	return err
}

func (r *destinationRequest) Find() error {
	if !r.d.destinations.IsBound() {
		return &api.Error{
			Code: api.CodeConflict, Message: "the files of rules are wrong, and what they said before about destinations stands until they are read",
			Hint: "netnice rules check; netnice rules reload",
		}
	}
	r.begin(r.d.toward(r.part.subject, r.By.Owner(), r.By.UID), r.d.newToward(r.By, r.part))
	return nil
}

// Authorise leaves the rights to partOf, which asks for them before it looks up names for the caller.
func (r *destinationRequest) Authorise() error { return r.d.checkPersist(r.req, r.part.under, nil) }

func (r *destinationRequest) Plan(tx *transaction) error {
	if err := r.limitRequest.Plan(tx); err != nil || r.IsAnswered {
		return err
	}
	to := *r.next.to
	r.next.to = &to
	if r.node == nil {
		tx.learnNames(r.names)
		to.names = r.d.names.Addresses(to.selector.Names)
		to.met = r.met
	}
	if len(r.list) > 0 {
		r.Answer.Changed = true
	}
	if to.selector.List == "" || r.next.empty() {
		return nil
	}
	return r.d.lists.Take(tx, r.next.listKey(), r.list)
}

func (r *destinationRequest) Admit() error {
	if err := r.limitRequest.Admit(); err != nil || r.node != nil && len(r.list) == 0 {
		return err
	}
	return r.d.roomToward(&r.next, r.part)
}

func (r *destinationRequest) Apply(tx *transaction) (err error) {
	if !r.next.empty() {
		r.next.to.met = r.next.to.met && r.met
	}
	n := r.node
	switch {
	case r.next.empty():
		err = tx.liftDestinations(n)
	case n == nil:
		n, err = tx.addDestination(&r.next, r.part)
	default:
		if n, err = tx.put(n, &r.next); err == nil && len(r.list) > 0 {
			err = tx.assignDestinations()
		}
	}
	if err != nil {
		return request.KernelError(r.subject, err)
	}
	if !r.next.empty() {
		r.done(n)
	}
	return nil
}

func (r *destinationRequest) Finish() {
	if r.Answer.Changed && !r.DryRun {
		files := []string{r.d.file.Path()}
		if len(r.list) > 0 {
			r.Answer.LoadedPrefixes, r.Answer.LoadNS = len(r.list), uint64(time.Since(r.began))
			files = append(files, r.d.lists.Path(r.next.listKey()))
		}
		r.d.wakeEach()
		r.publish(files)
	}
	r.show(&r.next)
}

// newToward returns the node for a destination, without a limit so far.
func (d *Daemon) newToward(by auth.Actor, p part) node {
	n := node{
		res:   identity.Resolved{Subject: p.subject, Kind: enforce.KindDestination, UID: p.under.UID, Name: p.under.Name},
		since: time.Now(), to: &toward{selector: p.selector},
	}
	book := enforce.BookAdmin
	if p.everybody() {
		n.res.Name = ""
	}
	if !by.Root() {
		book = by.UID
		n.setUser(by.UID)
	}
	n.res.Key = towardKey(book, p.subject, p.under)
	return n
}

// alone reports whether a node needs no node for the subject that it is under: a user's limits in the kernel apply to
// that user's own processes only.
func (p part) alone(n *node) bool {
	return p.everybody() || n.IsOnlyUsers() && p.under.Kind == enforce.KindUser && p.under.UID == n.userUID
}

// roomToward refuses a limit beyond the number that the kernel side can compare or hold. The caller holds d.mu.
func (d *Daemon) roomToward(n *node, p part) error {
	is := n.forDestinations()
	if is.Under == 0 && !p.alone(n) {
		is.Under = p.under.Kind
	}
	return d.destinations.Admit(is)
}
