package daemon

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// checkWish refuses limits that no subject can have. An empty request is refused too.
func checkWish(by auth.Actor, req api.SetRequest) error {
	w := req.Wish
	set := "netnice set " + shell.Word(req.Subject.String())
	bad := func(hint, format string, args ...any) error {
		return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	if err := checkLine(by, req); err != nil {
		return err
	}
	for _, r := range limit.Rates {
		if rate := r.Asked(&w); rate != nil && *rate > units.MaxRate {
			return bad(set+" --up 10MB/s", "%d bytes/s: want at most %d, or 0 to lift the limit", *rate, units.MaxRate)
		}
	}
	switch {
	case w == api.Wish{}:
		return bad(set+" --up 10MB/s", "nothing to set: give a rate, a guarantee or a weight")
	case w.Weight != nil && *w.Weight > limit.MaxWeight:
		return bad(set+" --weight 100", "weight %d: want 1 to %d, or 0 for the default of %d", *w.Weight, limit.MaxWeight, limit.DefaultWeight)
	case w.BurstNS != nil && *w.BurstNS > limit.MaxBurstNS:
		return bad(set+" --burst 10ms", "burst %v: want at most %v, or 0 for the default of %v",
			time.Duration(min(*w.BurstNS, 1<<62)), time.Duration(limit.MaxBurstNS), time.Duration(limit.DefaultBurstNS))
	case w.Weight != nil && *w.Weight > limit.DefaultWeight && !by.Root():
		return auth.Check(by, auth.RaiseWeight, auth.Target{Subject: req.Subject, Wish: w})
	case w.DSCP != nil && (*w.DSCP < -1 || *w.DSCP > limit.MaxDSCP):
		return bad(set+" --dscp cs1", "a DSCP of %d: want 0 to %d, or -1 for none", *w.DSCP, limit.MaxDSCP)
	case w.Reserve != nil && w.Reserve.SliceNS != 0 && (w.Reserve.PeriodNS < limit.MinPeriodNS || w.Reserve.PeriodNS > limit.MaxPeriodNS || w.Reserve.SliceNS > w.Reserve.PeriodNS):
		return bad(reserveCommand(req), "a slice of %v in each %v: want a period of %v to %v, and a slice that is not longer", time.Duration(min(w.Reserve.SliceNS, 1<<62)),
			time.Duration(min(w.Reserve.PeriodNS, 1<<62)), time.Duration(limit.MinPeriodNS), time.Duration(limit.MaxPeriodNS))
	case w.Reserve != nil && w.Reserve.SliceNS != 0 && w.MinBytesPerSec != nil && *w.MinBytesPerSec != 0:
		return bad(reserveCommand(req), "a guarantee and a reservation at once: give one of them")
	case w.Reserve != nil && w.Reserve.ForNS > limit.MaxForNS:
		return bad(reserveCommand(req)+" --for 1h", "a reservation for %v: want at most %v, or 0 until it is released", time.Duration(min(w.Reserve.ForNS, 1<<62)), time.Duration(limit.MaxForNS))
	case w.Grant != nil && w.Grant.PPM > limit.WholePPM:
		return bad(grantUse, "a grant of %d millionths: want at most %d", w.Grant.PPM, limit.WholePPM)
	case w.Grant != nil && req.Subject.Kind != api.KindUser:
		return bad(grantUse, "%s is no user, who could be granted reservations", req.Subject)
	case w.Grant != nil && !by.Root():
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: req.Subject, Wish: w})
	case w.MinBytesPerSec != nil && *w.MinBytesPerSec > 0, w.MinDownBytesPerSec != nil && *w.MinDownBytesPerSec > 0:
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: req.Subject, Wish: w})
	}
	return nil
}

// grantUse is a command by which users are granted reservations.
const grantUse = "netnice reserve --user NAME --link eth0 --grant 20%"

// reserveCommand returns a command that reserves some of the link in a request.
func reserveCommand(req api.SetRequest) string {
	device, _, _ := strings.Cut(req.Wish.Reserve.Link, "@") // the command adds the network namespace
	return "netnice reserve " + req.Subject.String() + " --link " + cmp.Or(device, "eth0") + " --period 10ms --slice 2ms"
}
