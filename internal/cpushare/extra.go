package cpushare

import (
	"context"
	"math"
	"time"

	"github.com/netnice/netnice/internal/cpu"
)

// A reservation with a share of the rest (Nemesis' x = true) has no ceiling. It has its slice, and as much of the
// remaining time as a program of ordinary weight. To the kernel it is one weight beside the weights of other programs.
// No interface reports their weights, but they show in the part of the requested CPU time that the program gets. The
// daemon measures that part, and adjusts the weight. Without a daemon the weight stays as the last competitors
// required.

const (
	extraTick = 100 * time.Millisecond
	// extraOthers is the assumed weight of other programs on each processor, until it was measured.
	extraOthers = 4 * cpu.OrdinaryWeight
	// The daemon measures only while the program waits for at least extraWaits of the time that it wants. It also has
	// to want at least extraWants of a processor.
	extraWaits, extraWants = 0.005, 0.9
	// Where the program has less than extraShort of its slice, the daemon takes the measured weight of others at once.
	// Otherwise it moves by extraBelieve toward that weight at each reading.
	extraShort, extraBelieve = 0.95, 0.2
	// extraLeast of a processor counts as remaining at least, so that a weight is finite.
	extraLeast = 0.01
)

// extraSeen holds the results of the last readings.
type extraSeen struct {
	others     float64 // weight of all other programs together; 0 = not known
	processors float64 // number of processors that the program could use
	usedNS     uint64
	waitedNS   uint64
	at         time.Time
}

// weightFor returns the weight that gives percent of one processor and, of the rest, an ordinary share.
func (e *extraSeen) weightFor(percent float64) uint64 {
	processors, others := max(e.processors, 1, math.Ceil(percent/100)), e.others
	if others == 0 {
		others = extraOthers * processors
	}
	slice := percent / 100
	rest := max(processors-slice, extraLeast)
	// weight/(weight + others) of the processors are to be the slice and ordinary/(ordinary + others) of the rest.
	weight := cpu.OrdinaryWeight + slice/rest*(cpu.OrdinaryWeight+others)
	return uint64(min(weight, cpu.MostWeight))
}

// follow adjusts the estimates to the time that the program had and waited for, with that weight, since the last
// reading.
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

// Keep adjusts shares of the rest while there are some. At its end it stops the keeping of slots, which needs the
// daemon.
func (t *Table) Keep(ctx context.Context) {
	defer t.leaveSlots()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.extras:
		}
		tick := time.NewTicker(extraTick)
		for t.followExtras(ctx) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		tick.Stop()
	}
}

func (t *Table) leaveSlots() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found != nil {
		_ = t.found.KeepSlots(nil) // stopping does not fail
	}
}

// hasExtra starts the adjustment of shares of the rest. The caller holds t.mu.
func (t *Table) hasExtra() {
	select {
	case t.extras <- struct{}{}:
	default:
	}
}

// followExtras adjusts the shares of the rest, and reports whether there are any.
func (t *Table) followExtras(ctx context.Context) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, p := range t.list {
		ceiling, _ := p.holding()
		percent := p.guaranteed()
		if percent == 0 || ceiling != (wish{}) {
			continue
		}
		more = true
		was, before := p.extra, p.share()
		processors := t.found
		p.extra.usedNS, p.extra.waitedNS, p.extra.at = processors.Used(p.Group, was.usedNS), processors.Waited(p.Group), time.Now()
		over := float64(p.extra.at.Sub(was.at))
		if was.at.IsZero() || over <= 0 || p.extra.usedNS < was.usedNS || p.extra.waitedNS < was.waitedNS {
			continue // some processes have ended
		}
		p.extra.follow(before.Weight, percent, float64(p.extra.usedNS-was.usedNS)/over, float64(p.extra.waitedNS-was.waitedNS)/over)
		if now := p.share(); now != before {
			if err := processors.Set(ctx, p.Group, now); err != nil {
				t.log.Debug("a share of the rest is not followed", "pid", p.PID, "err", err)
			}
		}
	}
	return more
}
