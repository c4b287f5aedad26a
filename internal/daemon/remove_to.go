package daemon

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/identity"
)

// removeToward lifts the limits on a destination: for a user their own, for root everybody's.
func (d *Daemon) removeToward(ctx context.Context, by auth.Actor, s api.Subject, dryRun bool) (api.SetResponse, error) {
	answer := api.SetResponse{Version: api.Version, Changed: true}
	p, err := d.partOf(ctx, by, auth.Remove, s, api.Wish{})
	if err != nil {
		return api.SetResponse{}, err
	}
	lifted := false
	defer func() { d.drain(lifted) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isDown {
		return api.SetResponse{}, leaving()
	}
	others := false
	var list []*node
	for _, n := range d.nodes.Sorted() {
		switch {
		case n.to == nil || n.res.Subject != p.subject:
		case by.Root() || n.own() && n.userUID == by.UID:
			list = append(list, n)
		default:
			others = others || n.record().DestinationIsFor(by)
		}
	}
	switch {
	case len(list) == 0 && others:
		return api.SetResponse{}, auth.Denied(fmt.Sprintf("the limit on %s was set by the administrator", p.subject), auth.Command(auth.Remove, p.subject, api.Wish{}))
	case len(list) == 0:
		return api.SetResponse{}, &api.Error{Code: api.CodeNoLimit, Message: fmt.Sprintf("no limit stands on %s", p.subject), Hint: "netnice ls"}
	}
	for _, n := range list {
		if n.own() && by.Root() {
			answer.Warnings = append(answer.Warnings, fmt.Sprintf("the limit that %s had set was lifted", n.userName))
		}
		if dryRun {
			continue
		}
		before := *n
		if err := d.liftToward(n); err != nil {
			return api.SetResponse{}, kernelError(p.subject, err)
		}
		lifted = true
		d.wakeEach()
		d.tellSet(&before, nil, identity.OwnerName(by.Owner(), by.UID))
		d.log.Info("limit lifted", "subject", p.subject.String(), "by", by.UID, "node", n.id)
	}
	if others {
		answer.Warnings = append(answer.Warnings, "the limit that the administrator set stays")
	}
	if lifted {
		answer.Warnings = append(answer.Warnings, d.unwrittenWarnings(d.file.Path(), true)...)
	}
	return answer, nil
}
