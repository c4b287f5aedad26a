package daemon

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/request"
)

// relayOf finds the program that relays connections to published ports inside a container by its loopback device. It
// looks only where a rate is set on a cgroup that the caller may limit, and returns nil if there is no relay. It reads
// all processes, so the caller must not hold d.mu.
func (d *Daemon) relayOf(by auth.Actor, req api.SetRequest, res identity.Resolved) *identity.Relay {
	if res.Kind != enforce.KindCgroup || res.Pending() || req.Scope || !request.SetsRate(req.Wish) ||
		auth.Check(by, auth.Set, target(nil, res, res.Subject, req.Wish)) != nil {
		return nil
	}
	relay, found := d.resolver.LoopbackRelay(res.Dir)
	if !found {
		return nil
	}
	return &relay
}
