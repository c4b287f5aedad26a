package request

import (
	"cmp"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/destination"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

// CheckLimit refuses limits that no subject can have. An empty request is refused too.
func CheckLimit(by auth.Actor, req api.SetRequest) error {
	for _, check := range []func(auth.Actor, api.SetRequest) error{checkLine, checkRates, checkShare, checkReservation, checkGrant} {
		if err := check(by, req); err != nil {
			return err
		}
	}
	w := req.Wish
	if w.MinBytesPerSec != nil && *w.MinBytesPerSec > 0 || w.MinDownBytesPerSec != nil && *w.MinDownBytesPerSec > 0 {
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: req.Subject, Wish: w})
	}
	return nil
}

// setCommand begins a command that sets a limit on the subject of a request.
func setCommand(req api.SetRequest) string { return "netnice set " + shell.Word(req.Subject.String()) }

func checkRates(_ auth.Actor, req api.SetRequest) error {
	for _, r := range limit.Rates {
		if rate := r.Asked(&req.Wish); rate != nil && *rate > units.MaxRate {
			return Bad(setCommand(req)+" --up 10MB/s", "%d bytes/s: want at most %d, or 0 to lift the limit", *rate, units.MaxRate)
		}
	}
	if req.Wish == (api.Wish{}) {
		return Bad(setCommand(req)+" --up 10MB/s", "nothing to set: give a rate, a guarantee or a weight")
	}
	return nil
}

// checkShare checks the weight, the burst and the mark.
func checkShare(by auth.Actor, req api.SetRequest) error {
	w, set := req.Wish, setCommand(req)
	switch {
	case w.Weight != nil && *w.Weight > limit.MaxWeight:
		return Bad(set+" --weight 100", "weight %d: want 1 to %d, or 0 for the default of %d", *w.Weight, limit.MaxWeight, limit.DefaultWeight)
	case w.BurstNS != nil && *w.BurstNS > limit.MaxBurstNS:
		return Bad(set+" --burst 10ms", "burst %v: want at most %v, or 0 for the default of %v",
			time.Duration(min(*w.BurstNS, 1<<62)), time.Duration(limit.MaxBurstNS), time.Duration(limit.DefaultBurstNS))
	case w.Weight != nil && *w.Weight > limit.DefaultWeight && !by.Root():
		return auth.Check(by, auth.RaiseWeight, auth.Target{Subject: req.Subject, Wish: w})
	case w.DSCP != nil && (*w.DSCP < -1 || *w.DSCP > limit.MaxDSCP):
		return Bad(set+" --dscp cs1", "a DSCP of %d: want 0 to %d, or -1 for none", *w.DSCP, limit.MaxDSCP)
	}
	return nil
}

func checkReservation(_ auth.Actor, req api.SetRequest) error {
	r, least := req.Wish.Reserve, req.Wish.MinBytesPerSec
	switch {
	case r == nil:
		return nil
	case r.SliceNS != 0 && (r.PeriodNS < limit.MinPeriodNS || r.PeriodNS > limit.MaxPeriodNS || r.SliceNS > r.PeriodNS):
		return Bad(reserveCommand(req), "a slice of %v in each %v: want a period of %v to %v, and a slice that is not longer", time.Duration(min(r.SliceNS, 1<<62)),
			time.Duration(min(r.PeriodNS, 1<<62)), time.Duration(limit.MinPeriodNS), time.Duration(limit.MaxPeriodNS))
	case r.SliceNS != 0 && least != nil && *least != 0:
		return Bad(reserveCommand(req), "a guarantee and a reservation at once: give one of them")
	case r.ForNS > limit.MaxForNS:
		return Bad(reserveCommand(req)+" --for 1h", "a reservation for %v: want at most %v, or 0 until it is released", time.Duration(min(r.ForNS, 1<<62)), time.Duration(limit.MaxForNS))
	}
	return nil
}

func checkGrant(by auth.Actor, req api.SetRequest) error {
	g := req.Wish.Grant
	switch {
	case g == nil:
		return nil
	case g.PPM > limit.WholePPM:
		return Bad(grantUse, "a grant of %d millionths: want at most %d", g.PPM, limit.WholePPM)
	case req.Subject.Kind != api.KindUser:
		return Bad(grantUse, "%s is no user, who could be granted reservations", req.Subject)
	case !by.Root():
		return auth.Check(by, auth.Guarantee, auth.Target{Subject: req.Subject, Wish: req.Wish})
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

// CheckSpan refuses a limit for a time that cannot end by itself.
func CheckSpan(req api.SetRequest) error {
	hint := "netnice set " + shell.Word(req.Subject.String()) + " --up 1MB/s --for 10m"
	bad := func(format string, args ...any) error { return Bad(hint, format, args...) }
	switch {
	case req.ForNS == 0:
		return nil
	case req.ForNS < limit.MinForNS || req.ForNS > limit.MaxForNS:
		return bad("for %v: want %v to 10 years", time.Duration(min(req.ForNS, 1<<62)), time.Duration(limit.MinForNS))
	case req.Subject.Kind == api.KindTo && isEach(req.Subject.ID):
		hint = strings.TrimSuffix(hint, " --for 10m")
		return bad("a limit of each address is not for a time")
	case len(req.Members) > 0 || req.Scope:
		return bad("members and scopes stay: set the limit for a time when they are there")
	case !limit.RatesOnly(req.Wish):
		return bad("a limit for a time has rates only (--up, --down, --total), and lifts none")
	}
	return nil
}

// isEach reports whether the id of a destination means each address by itself.
func isEach(id string) bool {
	s, _, err := destination.Parse(id)
	return err == nil && s.Each
}

// checkLine refuses impossible overheads, subjects that are not links, and callers other than administrators.
func checkLine(by auth.Actor, req api.SetRequest) error {
	l := req.Wish.Line
	bad := func(format string, args ...any) error {
		return Bad("netnice link DEVICE --overhead 30 --mpu 64", format, args...)
	}
	switch {
	case l == nil:
		return nil
	case req.Subject.Kind != api.KindLink:
		return bad("%s is no link, whose line could add to a packet", req.Subject)
	case l.OverheadBytes > limit.MaxOverhead:
		return bad("an overhead of %d bytes a packet: want at most %d", l.OverheadBytes, limit.MaxOverhead)
	case l.LeastBytes > limit.MaxLeast:
		return bad("%d bytes at least for a packet: want at most %d", l.LeastBytes, limit.MaxLeast)
	}
	return auth.Check(by, auth.Set, auth.Target{Subject: req.Subject, Kind: enforce.KindLink, Wish: req.Wish})
}

// CheckOwned refuses subjects that no user owns, before anything is looked up for the user: a user may not learn which
// units and containers exist.
func CheckOwned(by auth.Actor, act auth.Action, s api.Subject, w api.Wish) error {
	if s.Kind != api.KindUnit && s.Kind != api.KindContainer {
		return nil
	}
	return auth.Check(by, act, auth.Target{Subject: s, Kind: enforce.KindHost, Wish: w})
}
