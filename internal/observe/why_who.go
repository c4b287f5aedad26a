package observe

import (
	"context"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// askers counts the running measurements by user.
type askers struct{ auth.InFlight }

func (a *askers) enter(by auth.Actor) (leave func(), err error) {
	if by.Root() {
		return func() {}, nil
	}
	leave, own, all := a.Enter(by.UID, auth.MaxMeasuredPerUser, auth.MaxMeasuredOfUsers)
	if leave == nil {
		return nil, &api.Error{
			Code: api.CodeConflict, Message: fmt.Sprintf("%d connections are measured for you, and %d for all, which are as many as may be", own, all),
			Hint: "run it again in a moment",
		}
	}
	return leave, nil
}

// whose finds the process and checks that the caller may look at its connections.
func (o *Observer) whose(ctx context.Context, by auth.Actor, pid int) (identity.Resolved, error) {
	res, err := o.resolver.Resolve(ctx, identity.PIDSubject(pid))
	switch {
	case err != nil:
		return res, err
	case res.Kind != enforce.KindTree:
		return res, &api.Error{
			Code: api.CodeBadRequest, Message: "process 1 stands for the whole machine: ask about one of its processes",
			Hint: "netnice show --host",
		}
	}
	return res, auth.Check(by, auth.Measure, auth.Target{Subject: res.Subject, Kind: res.Kind, UID: res.UID})
}
