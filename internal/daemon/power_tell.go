package daemon

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// tellPowerSet publishes the change of a CPU share. A share that wants nothing counts as none. The caller holds
// d.powers.mu.
func (d *Daemon) tellPowerSet(before, now *powered, by string) {
	switch {
	case now.nothing():
		d.tellPower(api.EventPowerLifted, before, by, "")
	case before.nothing():
		d.tellPower(api.EventPowerSet, now, by, "")
	default:
		d.tellPower(api.EventPowerChanged, now, by, "")
	}
}

// tellPower publishes an event about a CPU share to the process's user and to the owner of the request.
func (d *Daemon) tellPower(t api.EventType, p *powered, by, message string) {
	if !d.events.heard() {
		return
	}
	to := audience{uids: [2]uint32{p.UID}}
	if p.Wishes[enforce.OwnerUser] != (powerWish{}) {
		to.uids[1] = p.UserUID
	}
	subject, shown := identity.PIDSubject(p.PID), d.renderPower(p)
	d.events.tell(to, api.Event{Type: t, Subject: &subject, PID: p.PID, Name: shown.Name, By: by, Power: &shown, Message: message})
}
