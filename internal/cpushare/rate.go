package cpushare

import (
	"context"
	"math"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/enforce"
)

// A CPU reservation can be given as the rate at which a program has to send. The CPU time that a program needs is in
// proportion to the bytes that it sends (Nemesis, figure 7). The daemon can therefore measure it at any rate, and the
// result holds for the requested rate. The daemon measures while the reservation exists, and corrects it.

const (
	// autoMargin is the factor between the measured need and the reservation. A program stands still at the end of a
	// slice, and has to make up for the time in which it could not send.
	autoMargin = 1.25
	// autoGuess is the reservation before the first measurement, in per cent for each Mbit/s. It is several times the
	// need of a program that does nothing but send. autoGuessLeast is the least such guess, in per cent.
	autoGuess, autoGuessLeast = 0.1, 10.0
	// The reservation grows at once, by the factor autoMore, where it is short. It is short if the program reaches less
	// than autoShort of the rate and uses more than autoBusy of the reservation.
	autoShort, autoBusy, autoMore = 0.985, 0.9, 1.5
	// The reservation shrinks when the required one was below autoLoose of it for autoLooks readings in a row.
	autoLoose, autoLooks = 0.75, 5
	// autoLeast is the part of the rate that a program has to reach for a measurement to count.
	autoLeast = 0.02
	autoFloor = 2.0 // per cent
)

// auto is such a reservation: the requested rate, and the last measurement.
type auto struct {
	RateBytesPerSec uint64 `json:"rate_bytes_per_sec"`
	// PercentPerMbit is the last measurement, 0 = none yet. It was made at MeasuredBytesPerSec.
	PercentPerMbit      float64 `json:"percent_per_mbit,omitempty"`
	MeasuredBytesPerSec uint64  `json:"measured_bytes_per_sec,omitempty"`
	MeasuredPercent     float64 `json:"measured_percent,omitempty"`
}

// autoSeen holds the counters of the last reading.
type autoSeen struct {
	bytes  uint64
	usedNS uint64
	at     time.Time
	loose  int
	short  bool // a larger reservation is needed, and no room is left for it
}

func mbit(bytesPerSec float64) float64 { return bytesPerSec * 8 / 1e6 }

// guess returns the reservation before the first measurement, in per cent.
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

// wishFor returns a reservation of that many per cent of a processor.
func wishFor(percent float64, a auto) wish {
	c := cpu.Ceiling(max(int(math.Ceil(percent)), 1))
	return wish{PeriodNS: c.PeriodNS, SliceNS: c.SliceNS, Auto: a}
}

// followAuto measures the program, and corrects its reservation. The caller holds t.mu.
func (t *Table) followAuto(ctx context.Context, p *entry) {
	w := p.Wishes[enforce.OwnerAdmin]
	if w.Auto == (auto{}) {
		return
	}
	bytes, ok := t.host.SentBytes(p.PID, p.StartNS)
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
	if most := t.leftBeside(p); next.percent() > most {
		next = wishFor(math.Floor(most), next.Auto)
		p.seen.short = true
	}
	if next.SliceNS == w.SliceNS && next.PeriodNS == w.PeriodNS && w.Auto.PercentPerMbit != 0 {
		return // nothing more is left to reserve
	}
	corrected := *p
	corrected.Wishes[enforce.OwnerAdmin] = next
	if _, err := t.commit(ctx, administrator, p, &corrected); err != nil {
		t.log.Warn("a reservation of the processors is not corrected", "pid", p.PID, "err", err)
		return
	}
	t.tellSet(p, p, byMeasuring)
	t.log.Info("reservation of the processors corrected", "pid", p.PID, "percent", next.percent(), "was", w.percent(),
		"sent_bytes_per_sec", uint64(rate), "percent_per_mbit", next.Auto.PercentPerMbit)
}

// follow returns the reservation after a reading: the program sent at that rate, and used that many per cent of a
// processor.
func (w wish) follow(rate, percent float64, seen *autoSeen) (next wish, changed bool) {
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
