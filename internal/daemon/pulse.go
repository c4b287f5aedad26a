package daemon

import (
	"context"
	"time"
)

// pulse is the one tick of all loops that look at something again and again. A daemon at rest then wakes up once in a
// tick, not once for each loop.
type pulse struct{ beats []chan time.Time }

// beat returns a channel that receives a value at each tick. It is called before run.
func (p *pulse) beat() <-chan time.Time {
	c := make(chan time.Time, 1)
	p.beats = append(p.beats, c)
	return c
}

// run ticks until ctx ends. A loop that is busy at a tick looks once more afterwards.
func (p *pulse) run(ctx context.Context, every time.Duration) {
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
