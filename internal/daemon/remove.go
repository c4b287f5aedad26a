package daemon

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
)

// Remove implements apiserver.Backend. Root unsets every owner's limits, a user only their own.
func (d *Daemon) Remove(ctx context.Context, by auth.Actor, s api.Subject, dryRun bool) (api.SetResponse, error) {
	if s.Kind == api.KindTo {
		return d.removeToward(ctx, by, s, dryRun)
	}
	if err := nobodys(by, auth.Remove, s, api.Wish{}); err != nil {
		return api.SetResponse{}, err
	}
	res, resErr := d.resolver.Resolve(ctx, s)
	if resErr != nil && !identity.IsNotFound(resErr) {
		return api.SetResponse{}, resErr
	}
	lifted := false
	defer func() { d.drain(lifted) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return api.SetResponse{}, leaving()
	}
	n := d.find(res, s, resErr)
	if n == nil && resErr != nil {
		return api.SetResponse{}, resErr
	}
	if n == nil || !n.commanded() && n.ruled.Empty() {
		if n = d.scopeOf(res); n == nil {
			return api.SetResponse{}, &api.Error{
				Code:    api.CodeNoLimit,
				Message: fmt.Sprintf("no limit stands on %s", s), Hint: "netnice ls",
			}
		}
	}
	if err := auth.Check(by, auth.Remove, target(n, n.res, s, api.Wish{})); err != nil {
		return api.SetResponse{}, err
	}
	answer := api.SetResponse{Version: api.Version, Changed: true}
	next := *n
	if !n.commanded() { // every limit is from a rule
		answer.Changed = false
		for owner := range n.ruled.Owners {
			answer.Warnings = append(answer.Warnings, ruleWarnings(n.ruled, enforce.Owner(owner))...)
		}
		answer.Node = d.show(by, n, d.lookAt(n, dryRun))
		return answer, nil
	}
	admin, user := n.asks(enforce.OwnerAdmin), n.asks(enforce.OwnerUser)
	switch {
	case by.Root():
		next.requested, next.timed = limit.Owners{}, [enforce.Owners]desired.Timed{}
		if user {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("the limit that %s had set was lifted too", n.userName))
		}
	case !user:
		return api.SetResponse{}, auth.Denied(fmt.Sprintf("the limit on %s was set by the administrator", s),
			auth.Command(auth.Remove, s, api.Wish{}))
	default:
		if err := d.others(by, n, s); err != nil {
			return api.SetResponse{}, err
		}
		next.requested[enforce.OwnerUser], next.timed[enforce.OwnerUser] = limit.Limit{}, desired.Timed{}
		if admin {
			answer.Warnings = append(answer.Warnings, "the limit that the administrator set stays")
		}
	}
	next.reserved = d.worth(next.holding().Reservation())
	if !dryRun {
		before := *n
		var err error
		if next.empty() {
			err = d.end(n)
		} else {
			_, err = d.commit(n, &next)
		}
		lifted = err == nil
		if err != nil {
			return api.SetResponse{}, kernelError(s, err)
		}
		if g := before.requested[enforce.OwnerAdmin].Grant; g != next.requested[enforce.OwnerAdmin].Grant {
			d.followGrant(uint32(before.res.Key), g.Link)
		}
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.file.Path(), true)...)
		d.tellSet(&before, next.ifAny(), identity.OwnerName(by.Owner(), by.UID))
		d.log.Info("limit lifted", "subject", n.res.Subject.String(), "by", by.UID, "node", n.id)
	}
	for owner := range next.ruled.Owners {
		answer.Warnings = append(answer.Warnings, ruleWarnings(next.ruled, enforce.Owner(owner))...)
	}
	if !next.empty() {
		answer.Node = d.show(by, &next, d.lookAt(&next, dryRun))
	}
	return answer, nil
}
