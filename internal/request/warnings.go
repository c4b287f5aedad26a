package request

import (
	"fmt"
	"slices"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/units"
)

// Overruled warns of rates that have no effect, because another owner has set a lower one on the same subject.
func Overruled(owner enforce.Owner, asked api.Wish, holding limit.Owners) (list []string) {
	other, whose := enforce.OwnerAdmin, "the administrator's"
	if owner == enforce.OwnerAdmin {
		other, whose = enforce.OwnerUser, "the user's own"
	}
	holds := holding[other]
	for _, of := range []struct {
		asked *uint64
		lower uint64
		what  string
	}{{asked.UpBytesPerSec, holds.Up, "up"}, {asked.DownBytesPerSec, holds.Down, "down"}, {asked.TotalBytesPerSec, holds.Total, "total"}} {
		if of.asked != nil && of.lower != 0 && *of.asked > of.lower {
			list = append(list, fmt.Sprintf("%s limit of %s %s is lower, and holds", whose, units.RateText(of.lower), of.what))
		}
	}
	if total := holding[owner].Total; total != 0 && asked.TotalBytesPerSec == nil {
		for _, rate := range []*uint64{asked.UpBytesPerSec, asked.DownBytesPerSec} {
			if rate != nil && *rate > total {
				return append(list, fmt.Sprintf("the limit of %s for both directions together is lower, and holds; --total 0 lifts it", units.RateText(total)))
			}
		}
	}
	return list
}

// SetsRate reports whether a requested limit names a rate that is not 0.
func SetsRate(w api.Wish) bool {
	return slices.ContainsFunc([]*uint64{w.UpBytesPerSec, w.DownBytesPerSec, w.TotalBytesPerSec}, func(rate *uint64) bool {
		return rate != nil && *rate != 0
	})
}

// RelayWarnings warns that a node's limits do not count the traffic of a relay, unless traffic over the loopback device
// is limited, too.
func RelayWarnings(relay *identity.Relay, n *api.Node) []string {
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
