package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/shell"
	"github.com/netnice/netnice/internal/units"
)

const (
	defaultWeight = 100
	maxWeight     = 10000
	defaultBurst  = uint64(10 * time.Millisecond)
	maxBurst      = uint64(time.Minute)

	mostDSCP = 63

	leastPeriodNS = uint64(time.Millisecond)
	mostPeriodNS  = uint64(time.Second)
	mostForNS     = uint64(10 * 365 * 24 * time.Hour)
)

// wish is one owner's request for a node. The zero value requests nothing.
type wish struct {
	Up       uint64 `json:"up_bytes_per_sec,omitempty"`
	Down     uint64 `json:"down_bytes_per_sec,omitempty"`
	Total    uint64 `json:"total_bytes_per_sec,omitempty"`
	BurstNS  uint64 `json:"burst_ns,omitempty"` // 0 = defaultBurst
	Weight   uint32 `json:"weight,omitempty"`   // 0 = not set
	Min      uint64 `json:"min_bytes_per_sec,omitempty"`
	MinDown  uint64 `json:"min_down_bytes_per_sec,omitempty"` // since version 7 of the state
	Reserve  slice  `json:"reserve,omitzero"`                 // instead of Min; since version 6 of the state
	Grant    grant  `json:"grant,omitzero"`                   // since version 7
	DSCP     uint8  `json:"dscp_and_1,omitempty"`             // 0 = none
	Line     line   `json:"line,omitzero"`                    // of a link
	Loopback bool   `json:"loopback,omitempty"`
	MeterOff bool   `json:"input_meter_off,omitempty"` // received bytes do not count in total
	// UntilReboot says that the limit ends with a reboot; since version 4 of the state.
	UntilReboot bool `json:"until_reboot,omitempty"`
}

type wishes [enforce.Owners]wish

// rates returns the ceilings by direction.
func (w wish) rates() [enforce.Directions]uint64 {
	return [enforce.Directions]uint64{enforce.Up: w.Up, enforce.Down: w.Down, enforce.Total: w.Total}
}

// empty reports whether the requested limit needs no node: burst, loopback and the input meter only qualify a rate.
func (w wish) empty() bool {
	return w.rates() == [enforce.Directions]uint64{} && w.Weight == 0 && w.Min == 0 && w.MinDown == 0 && w.Reserve == slice{} && w.Grant == grant{} && w.DSCP == 0
}

// over returns w, with the values of other where w has none.
func (w wish) over(other wish) wish {
	for _, r := range []struct{ to, from *uint64 }{
		{&w.Up, &other.Up}, {&w.Down, &other.Down}, {&w.Total, &other.Total}, {&w.Min, &other.Min}, {&w.MinDown, &other.MinDown},
	} {
		if *r.to == 0 {
			*r.to = *r.from
		}
	}
	if w.Weight == 0 {
		w.Weight = other.Weight
	}
	return w
}

// merge returns w with the values of change. If the last rate or guarantee is unset, so is the whole limit, including
// the weight.
func (w wish) merge(change api.Wish) wish {
	lifts := false
	setRate := func(to *uint64, from *uint64) {
		if from != nil {
			lifts = lifts || *from == 0 && *to != 0 // a rate that was not set lifts nothing
			*to = *from
		}
	}
	setRate(&w.Up, change.UpBytesPerSec)
	setRate(&w.Down, change.DownBytesPerSec)
	setRate(&w.Total, change.TotalBytesPerSec)
	setRate(&w.Min, change.MinBytesPerSec)
	setRate(&w.MinDown, change.MinDownBytesPerSec)
	if change.MinBytesPerSec != nil && w.Min != 0 {
		w.Reserve = slice{}
	}
	if change.DSCP != nil {
		w.DSCP = uint8(*change.DSCP + 1)
		lifts = lifts || w.DSCP == 0
	}
	if r := change.Reserve; r != nil {
		w.Reserve = sliceOf(*r)
		lifts = lifts || r.SliceNS == 0
		if r.SliceNS != 0 {
			w.Min = 0
		}
	}
	if g := change.Grant; g != nil {
		w.Grant = grantOf(*g)
		lifts = lifts || g.PPM == 0
	}
	if change.Line != nil {
		w.Line = lineOf(*change.Line)
	}
	if change.BurstNS != nil {
		w.BurstNS = *change.BurstNS
	}
	if change.Weight != nil {
		w.Weight = *change.Weight
	}
	if change.Loopback != nil {
		w.Loopback = *change.Loopback
	}
	if change.InputMeter != nil {
		w.MeterOff = !*change.InputMeter
	}
	if change.Persist != nil {
		w.UntilReboot = !*change.Persist
	}
	if lifts && w.rates() == [enforce.Directions]uint64{} && w.Min == 0 && w.MinDown == 0 && w.Reserve == (slice{}) && w.Grant == (grant{}) && w.DSCP == 0 && (change.Weight == nil || *change.Weight == 0) {
		return wish{}
	}
	if w.empty() {
		return wish{}
	}
	return w
}

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
	for _, rate := range []*uint64{w.UpBytesPerSec, w.DownBytesPerSec, w.TotalBytesPerSec, w.MinBytesPerSec, w.MinDownBytesPerSec} {
		if rate != nil && *rate > units.MaxRate {
			return bad(set+" --up 10MB/s", "%d bytes/s: want at most %d, or 0 to lift the limit", *rate, units.MaxRate)
		}
	}
	switch {
	case w == api.Wish{}:
		return bad(set+" --up 10MB/s", "nothing to set: give a rate, a guarantee or a weight")
	case w.Weight != nil && *w.Weight > maxWeight:
		return bad(set+" --weight 100", "weight %d: want 1 to %d, or 0 for the default of %d", *w.Weight, maxWeight, defaultWeight)
	case w.BurstNS != nil && *w.BurstNS > maxBurst:
		return bad(set+" --burst 10ms", "burst %v: want at most %v, or 0 for the default of %v",
			time.Duration(min(*w.BurstNS, 1<<62)), time.Duration(maxBurst), time.Duration(defaultBurst))
	case w.Weight != nil && *w.Weight > defaultWeight && !by.Root():
		return auth.Check(by, auth.RaiseWeight, auth.Target{Subject: req.Subject, Wish: w})
	case w.DSCP != nil && (*w.DSCP < -1 || *w.DSCP > mostDSCP):
		return bad(set+" --dscp cs1", "a DSCP of %d: want 0 to %d, or -1 for none", *w.DSCP, mostDSCP)
	case w.Reserve != nil && w.Reserve.SliceNS != 0 && (w.Reserve.PeriodNS < leastPeriodNS || w.Reserve.PeriodNS > mostPeriodNS || w.Reserve.SliceNS > w.Reserve.PeriodNS):
		return bad(reserveCommand(req), "a slice of %v in each %v: want a period of %v to %v, and a slice that is not longer", time.Duration(min(w.Reserve.SliceNS, 1<<62)),
			time.Duration(min(w.Reserve.PeriodNS, 1<<62)), time.Duration(leastPeriodNS), time.Duration(mostPeriodNS))
	case w.Reserve != nil && w.Reserve.SliceNS != 0 && w.MinBytesPerSec != nil && *w.MinBytesPerSec != 0:
		return bad(reserveCommand(req), "a guarantee and a reservation at once: give one of them")
	case w.Reserve != nil && w.Reserve.ForNS > mostForNS:
		return bad(reserveCommand(req)+" --for 1h", "a reservation for %v: want at most %v, or 0 until it is released", time.Duration(min(w.Reserve.ForNS, 1<<62)), time.Duration(mostForNS))
	case w.Grant != nil && w.Grant.PPM > wholePPM:
		return bad(grantUse, "a grant of %d millionths: want at most %d", w.Grant.PPM, wholePPM)
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

// ceilings returns the ceilings of all owners for the kernel side.
func (w wishes) ceilings() (c [enforce.Owners][enforce.Directions]enforce.Ceiling) {
	for owner, wish := range w {
		for dir, rate := range wish.rates() {
			if rate != 0 {
				c[owner][dir] = enforce.Ceiling{BytesPerSec: rate, BurstNS: wish.BurstNS}
			}
		}
	}
	return c
}

// weight returns the lower of the owners' weights.
func (w wishes) weight() uint32 {
	weight := uint32(0)
	for _, wish := range w {
		if wish.Weight != 0 && (weight == 0 || wish.Weight < weight) {
			weight = wish.Weight
		}
	}
	if weight == 0 {
		return defaultWeight
	}
	return weight
}

// guarantee returns the administrator's guarantee. A user has none, as the traffic of other users would have to give
// way to it.
func (w wishes) guarantee() uint64 { return w[enforce.OwnerAdmin].Min }

// dscp returns the administrator's mark, or else the user's, plus 1; 0 = none.
func (w wishes) dscp() uint8 { return cmp.Or(w[enforce.OwnerAdmin].DSCP, w[enforce.OwnerUser].DSCP) }

// loopback reports whether any owner requests it: it can only make a limit tighter.
func (w wishes) loopback() bool {
	for _, wish := range w {
		if wish.Loopback {
			return true
		}
	}
	return false
}

// meterOff reports whether all owners of a total request it: another owner can only make a limit tighter.
func (w wishes) meterOff() bool {
	off := false
	for _, wish := range w {
		if wish.Total == 0 {
			continue
		}
		if !wish.MeterOff {
			return false
		}
		off = true
	}
	return off
}

// hasTotal reports whether some owner limits both directions together.
func (w wishes) hasTotal() bool {
	return slices.ContainsFunc(w[:], func(w wish) bool { return w.Total != 0 })
}

func (w wishes) empty() bool {
	for _, wish := range w {
		if !wish.empty() {
			return false
		}
	}
	return true
}

// wishesOf reads the owners' limits back from a node in the kernel. Settings that the kernel keeps once per node
// (weight, loopback) count as the administrator's if the administrator requests anything, otherwise as the user's.
func wishesOf(spec enforce.NodeSpec) (w wishes) {
	for owner, ceilings := range spec.Ceilings {
		w[owner].Up = ceilings[enforce.Up].BytesPerSec
		w[owner].Down = ceilings[enforce.Down].BytesPerSec
		w[owner].Total = ceilings[enforce.Total].BytesPerSec
		for _, c := range ceilings {
			const grain = uint64(100 * time.Microsecond) // the kernel keeps bursts as bytes
			if c.BurstNS+grain < defaultBurst || c.BurstNS > defaultBurst+grain {
				w[owner].BurstNS = max(w[owner].BurstNS, min(c.BurstNS, maxBurst))
			}
		}
	}
	whose := enforce.OwnerAdmin
	if spec.Own {
		whose = enforce.OwnerUser
	}
	if spec.Weight != defaultWeight {
		w[whose].Weight = spec.Weight
	}
	if spec.PeriodNS == 0 { // the link of a reservation is not known
		w[enforce.OwnerAdmin].Min = spec.Guarantee
	}
	w[enforce.OwnerAdmin].MinDown = spec.GuaranteeDown
	w[enforce.OwnerAdmin].Line = line{Overhead: spec.Line.OverheadBytes, Least: spec.Line.LeastBytes, ATM: spec.Line.Cells}
	w[whose].Loopback, w[whose].DSCP = spec.Loopback, spec.DSCP
	for owner := range w {
		w[owner].MeterOff = spec.MeterOff && w[owner].Total != 0
	}
	return w
}
