package daemon

import (
	"context"
	"math"
	"time"

	"github.com/netnice/netnice/internal/cpu"
)

// A reservation with a share of the rest (Nemesis' x = true) has no ceiling: it has its slice, and of what is
// left as much as anybody of ordinary weight. That is a weight beside theirs, which nobody tells but
// which shows in what the program has of the processors that it wants; so it is followed. The weight
// stands without a daemon, for those who were there last.

const (
	extraTick = 100 * time.Millisecond
	// extraOthers are taken to be there until there are some, on each processor.
	extraOthers = 4 * cpu.OrdinaryWeight
	// It is followed while the program waits for so much of what it wants, and wants that of a processor.
	extraWaits, extraWants = 0.005, 0.9
	// What others weigh is believed at once where the program is short of its slice, and else by that
	// part at each look.
	extraShort, extraBelieve = 0.95, 0.2
	// extraLeast of a processor is left at least, for a weight to be finite.
	extraLeast = 0.01
)

// extraSeen is what the last looks saw.
type extraSeen struct {
	others     float64 // what others weigh, all together; 0 = not known
	processors float64 // so many the program could use
	usedNS     uint64
	waitedNS   uint64
	at         time.Time
}

// weightFor is the weight that gives per cent of one processor and, of the rest, an ordinary share.
func (e *extraSeen) weightFor(percent float64) uint64 {
	processors, others := max(e.processors, 1, math.Ceil(percent/100)), e.others
	if others == 0 {
		others = extraOthers * processors
	}
	slice := percent / 100
	rest := max(processors-slice, extraLeast)
	// weight/(weight + others) of the processors are to be the slice and
	// ordinary/(ordinary + others) of the rest
	weight := cpu.OrdinaryWeight + slice/rest*(cpu.OrdinaryWeight+others)
	return uint64(min(weight, cpu.MostWeight))
}

// follow takes in what the program had, and waited for, since the last look, with that weight.
func (e *extraSeen) follow(weight uint64, percent, ran, waited float64) {
	wants := ran + waited
	if ran <= 0 || waited < extraWaits*wants {
		return
	}
	short := ran < extraShort*percent/100
	if !short && wants < extraWants {
		return
	}
	processors := min(max(wants, 1), float64(cpu.Online()))
	others := float64(weight) * max(processors-ran, extraLeast) / ran
	if e.others != 0 && !short {
		others = e.others + extraBelieve*(others-e.others)
		processors = e.processors + extraBelieve*(processors-e.processors)
	}
	e.others, e.processors = others, processors
}

// keepPowers follows shares of the rest while there are some, and ends what it takes to keep slots
// with the daemon.
func (d *Daemon) keepPowers(ctx context.Context) {
	defer d.leaveSlots()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.powers.extras:
		}
		tick := time.NewTicker(extraTick)
		for d.followExtras(ctx) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		tick.Stop()
	}
}

func (d *Daemon) leaveSlots() {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	if d.powers.processors != nil {
		_ = d.powers.processors.KeepSlots(nil) // stopping does not fail
	}
}

// hasExtra has shares of the rest followed. The caller holds d.powers.mu.
func (d *Daemon) hasExtra() {
	select {
	case d.powers.extras <- struct{}{}:
	default:
	}
}

// followExtras reports whether there are shares of the rest.
func (d *Daemon) followExtras(ctx context.Context) (more bool) {
	d.powers.mu.Lock()
	defer d.powers.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, p := range d.powers.list {
		ceiling, _ := p.holding()
		percent := p.guaranteed()
		if percent == 0 || ceiling != (powerWish{}) {
			continue
		}
		more = true
		was, before := p.extra, p.share()
		processors := d.powers.processors
		p.extra.usedNS, p.extra.waitedNS, p.extra.at = processors.Used(p.Group, was.usedNS), processors.Waited(p.Group), time.Now()
		over := float64(p.extra.at.Sub(was.at))
		if was.at.IsZero() || over <= 0 || p.extra.usedNS < was.usedNS || p.extra.waitedNS < was.waitedNS {
			continue // some have ended
		}
		p.extra.follow(before.Weight, percent, float64(p.extra.usedNS-was.usedNS)/over, float64(p.extra.waitedNS-was.waitedNS)/over)
		if now := p.share(); now != before {
			if err := processors.Set(ctx, p.Group, now); err != nil {
				d.log.Debug("a share of the rest is not followed", "pid", p.PID, "err", err)
			}
		}
	}
	return more
}
