// Package pulse owns the one tick of all loops that look at something again and again. A program at rest then wakes up
// once in a tick, not once for each loop. It never looks at anything itself.
package pulse

import (
	"context"
	"time"
)

// Pulse is such a tick. The zero value has no loops.
type Pulse struct{ beats []chan time.Time }

// Beat returns a channel that receives a value at each tick. It is called before Run.
func (p *Pulse) Beat() <-chan time.Time {
	c := make(chan time.Time, 1)
	p.beats = append(p.beats, c)
	return c
}

// Run ticks until ctx ends. A loop that is busy at a tick looks once more afterwards.
func (p *Pulse) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range p.beats {
				select {
				case c <- now:
				default:
				}
			}
		}
	}
}
