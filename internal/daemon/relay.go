package daemon

import (
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// relayOf finds the program that relays connections to published ports inside a container by its loopback device. It
// looks only where a rate is set on a cgroup that the caller may limit, and returns nil if there is no relay. It reads
// all processes, so the caller must not hold d.mu.
func (d *Daemon) relayOf(by auth.Actor, req api.SetRequest, res identity.Resolved) *identity.Relay {
	if res.Kind != enforce.KindCgroup || res.Pending() || req.Scope || !setsRate(req.Wish) ||
		auth.Check(by, auth.Set, target(nil, res, res.Subject, req.Wish)) != nil {
		return nil
	}
	relay, found := d.resolver.LoopbackRelay(res.Dir)
	if !found {
		return nil
	}
	return &relay
}

// setsRate reports whether a requested limit names a rate that is not 0.
func setsRate(w api.Wish) bool {
	return slices.ContainsFunc([]*uint64{w.UpBytesPerSec, w.DownBytesPerSec, w.TotalBytesPerSec}, func(rate *uint64) bool {
		return rate != nil && *rate != 0
	})
}

// relayWarnings warns that a node's limits do not count the traffic of a relay, unless traffic over the loopback device
// is limited, too.
func relayWarnings(relay *identity.Relay, n *api.Node) []string {
	if relay == nil || n == nil || n.Loopback {
		return nil
	}
	sends := slices.ContainsFunc(n.Limits, func(l api.Limit) bool { return l.Direction != api.Down })
	receives := slices.ContainsFunc(n.Limits, func(l api.Limit) bool {
		return l.Direction == api.Down || l.Direction == api.Total && !n.MeterOff
	})
	whose := "connections to its published ports"
	if relay.Local {
		whose = "connections of this machine's own programs to its published ports"
	}
	text := fmt.Sprintf("%s come by the loopback device inside, from %s (pid %d), and are not counted", whose, relay.Name, relay.PID)
	if sends {
		text += ": --loopback limits what is sent there, too"
	}
	if receives {
		text += "; no limit counts what is received there"
	}
	return []string{text}
}
