package e2e

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/testbed"
)

// Every byte that leaves under a limit must be charged. holds and holdsFor compare both counts where `ls` lists a
// subject with that limit before and after.

// chargedPart is the fraction of the bytes sent that has to be charged, except for 64 KiB of each port.
const chargedPart = 0.99

// leastCompared is the shortest time between two readings that are compared.
const leastCompared = 100 * time.Millisecond

// sharedReading is how old the counters of a list may be: lists that are asked for within that time share a reading.
const sharedReading = 100 * time.Millisecond

// charges holds, at one instant, the bytes charged to each subject that has a certain limit on its egress.
type charges struct {
	bytes         map[string]uint64
	before, after testbed.Instant // the counters are read between these instants, or sharedReading earlier
}

// chargesOf reads the counters. The map is empty if no daemon answers.
func (f *field) chargesOf(limit float64) (c charges) {
	f.t.Helper()
	c = charges{bytes: map[string]uint64{}, before: testbed.Now()}
	r := f.netnice("ls", "--json")
	c.after = testbed.Now()
	var list api.NodeList
	if r.code != 0 || json.Unmarshal([]byte(r.out), &list) != nil {
		return c
	}
	for _, n := range list.Nodes {
		for _, l := range n.Limits {
			if float64(l.BytesPerSec) == limit && l.Direction != api.Down {
				c.bytes[n.Subject.String()] = n.Up.Bytes
			}
		}
	}
	return c
}

// allCharged compares the bytes charged since the first reading with the bytes that left the ports until the second
// reading, which may be as old as a shared one. It returns an error if fewer were charged.
func (f *field) allCharged(first, second charges, ports ...uint16) error {
	f.t.Helper()
	var charged float64
	for subject, bytes := range second.bytes {
		before, there := first.bytes[subject]
		if !there {
			f.t.Log("not compared with what was charged: " + subject + " has come meanwhile")
			return nil
		}
		charged += float64(bytes - before)
	}
	until := second.before.Add(-sharedReading)
	if len(second.bytes) == 0 || len(second.bytes) != len(first.bytes) || until <= first.after {
		f.t.Logf("not compared with what was charged: %d subjects have that limit, %d had it before", len(second.bytes), len(first.bytes))
		return nil
	}
	if until.Sub(first.after) < leastCompared {
		f.t.Log("not compared with what was charged: the window was over already")
		return nil
	}
	left := f.rate(first.after, until, ports...) * until.Sub(first.after).Seconds()
	f.t.Logf("charged: %.4f of what left", charged/left)
	if charged < chargedPart*left-float64(len(ports))*(1<<16) {
		return fmt.Errorf("%.0f bytes left, and %.0f were charged", left, charged)
	}
	return nil
}
