package cpushare

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// byMeasuring is the cause that events name where the table has corrected a reservation.
const byMeasuring = "auto"

// tellSet publishes the change of a CPU share. A share that wants nothing counts as none. The caller holds t.mu.
func (t *Table) tellSet(before, now *entry, by string) {
	switch {
	case now.nothing():
		t.tell(api.EventPowerLifted, before, by, "")
	case before.nothing():
		t.tell(api.EventPowerSet, now, by, "")
	default:
		t.tell(api.EventPowerChanged, now, by, "")
	}
}

// tell publishes an event about a CPU share to the process's user and to the owner of the request. The caller holds
// t.mu.
func (t *Table) tell(what api.EventType, p *entry, by, message string) {
	uids := [2]uint32{p.UID}
	if p.Wishes[enforce.OwnerUser] != (wish{}) {
		uids[1] = p.UserUID
	}
	t.host.Publish(uids, func() api.Event {
		subject, shown := identity.PIDSubject(p.PID), t.render(p)
		return api.Event{Type: what, Subject: &subject, PID: p.PID, Name: shown.Name, By: by, Power: &shown, Message: message}
	})
}
