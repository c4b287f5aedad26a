package daemon

import (
	"context"
	"math"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/identity"
)

// A reservation of the processors for what a program is to send: what it needs for each byte is in
// proportion to what it sends (Nemesis, figure 7), so it can be measured at any rate and holds for the one
// that is wanted. It is measured as long as the reservation stands, and corrected.

const (
	// autoMargin is reserved over what was measured: at the end of a slice a program stands still, and
	// what it could not send meanwhile it has to make up.
	autoMargin = 1.25
	// autoGuess is reserved until something was measured, in per cent for each Mbit/s: several times what
	// a program needs that does nothing but send.
	autoGuess, autoGuessLeast = 0.1, 10.0
	// It is more at once where it is short: with less than this of the rate, and more than this of the reservation used.
	autoShort, autoBusy, autoMore = 0.985, 0.9, 1.5
	// It is less when it was this much too large for so many looks.
	autoLoose, autoLooks = 0.75, 5
	// autoLeast is of the rate that has to be sent for a measurement to count.
	autoLeast = 0.02
	autoFloor = 2.0 // per cent
)

// auto is such a reservation: what is wanted, and what was found.
type auto struct {
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"`
	// PercentPerMbit is what was measured last, 0 = nothing yet; at MeasuredBytesPerSec.
	PercentPerMbit      float64 `json:"percent_per_mbit,omitempty"`
	MeasuredBytesPerSec uint64  `json:"measured_bytes_per_sec,omitempty"`
	MeasuredPercent     float64 `json:"measured_percent,omitempty"`
}

// autoSeen is what the last look saw.
type autoSeen struct {
	bytes  uint64
	usedNS uint64
	at     time.Time
	loose  int
	short  bool // more would be reserved, and is not left
}

func mbit(bytesPerSec float64) float64 { return bytesPerSec * 8 / 1e6 }

// guess is what is reserved before anything was measured.
func (a auto) guess() float64 {
	return max(autoGuess*mbit(float64(a.RateBytesPerSec)), autoGuessLeast)
}

func (a auto) api(short bool) *api.PowerAuto {
	if a == (auto{}) {
		return nil
	}
	return &api.PowerAuto{
		Short:           short,
		RateBytesPerSec: a.RateBytesPerSec, PercentPerMbit: a.PercentPerMbit, Margin: autoMargin,
		MeasuredBytesPerSec: a.MeasuredBytesPerSec, MeasuredPercent: a.MeasuredPercent,
	}
}

// wishFor is a reservation of that many per cent of a processor.
func wishFor(percent float64, a auto) powerWish {
	c := cpu.Ceiling(max(int(math.Ceil(percent)), 1))
	return powerWish{PeriodNS: c.PeriodNS, SliceNS: c.SliceNS, Auto: a}
}

// followAuto measures, and corrects the reservation. The caller holds d.powers.mu.
func (d *Daemon) followAuto(ctx context.Context, p *powered) {
	w := p.Wishes[enforce.OwnerAdmin]
	if w.Auto == (auto{}) {
		return
	}
	bytes, ok := d.sentBy(p)
	if !ok {
		return
	}
	now := autoSeen{bytes: bytes, usedNS: p.usedNS, at: p.usedAt, loose: p.seen.loose}
	was := p.seen
	p.seen = now
	over := now.at.Sub(was.at).Seconds()
	if was.at.IsZero() || over <= 0 || now.bytes < was.bytes || now.usedNS < was.usedNS {
		return
	}
	rate := float64(now.bytes-was.bytes) / over
	percent := float64(now.usedNS-was.usedNS) / 1e9 / over * 100
	next, changed := w.follow(rate, percent, &p.seen)
	if !changed {
		return
	}
	if most := d.leftBeside(p); next.percent() > most {
		next = wishFor(math.Floor(most), next.Auto)
		p.seen.short = true
	}
	if next.SliceNS == w.SliceNS && next.PeriodNS == w.PeriodNS && w.Auto.PercentPerMbit != 0 {
		return // there is no more
	}
	corrected := *p
	corrected.Wishes[enforce.OwnerAdmin] = next
	if _, err := d.commitPower(ctx, administrator, p, &corrected); err != nil {
		d.log.Warn("a reservation of the processors is not corrected", "pid", p.PID, "err", err)
		return
	}
	d.tellPowerSet(p, p, byMeasuring)
	d.log.Info("reservation of the processors corrected", "pid", p.PID, "percent", next.percent(), "was", w.percent(),
		"sent_bytes_per_sec", uint64(rate), "percent_per_mbit", next.Auto.PercentPerMbit)
}

// follow is the reservation after a look: the program sent at that rate, by that many per cent of a
// processor.
func (w powerWish) follow(rate, percent float64, seen *autoSeen) (next powerWish, changed bool) {
	a := w.Auto
	seen.short = false
	if rate < autoLeast*float64(a.RateBytesPerSec) || percent <= 0 {
		return w, false
	}
	first := a.PercentPerMbit == 0
	a.PercentPerMbit, a.MeasuredBytesPerSec, a.MeasuredPercent = percent/mbit(rate), uint64(rate), percent
	want := max(a.PercentPerMbit*mbit(float64(a.RateBytesPerSec))*autoMargin, autoFloor)
	has := w.percent()
	if rate < autoShort*float64(a.RateBytesPerSec) && percent > autoBusy*has {
		want = max(want, has*autoMore)
	}
	if want < autoLoose*has {
		seen.loose++
	} else {
		seen.loose = 0
	}
	if first || want > has || seen.loose >= autoLooks {
		seen.loose = 0
		return wishFor(want, a), true
	}
	return w, false
}

// sentBy is what a process and its descendants have sent since they have a limit.
func (d *Daemon) sentBy(p *powered) (bytes uint64, ok bool) {
	d.mu.Lock()
	var id uint32
	for _, n := range d.nodes {
		if n.res.Kind == enforce.KindTree && n.res.Key == uint64(p.PID) && identity.SameStart(n.res.StartBoottimeNS, p.StartNS) {
			id = n.id
		}
	}
	d.mu.Unlock()
	if id == 0 {
		return 0, false
	}
	now, err := d.sampler.of(id)
	return now.nodes[id].Bytes, err == nil
}
