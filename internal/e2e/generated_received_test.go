package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil/trafficgen"
)

// receivedBurst is how far a program may be ahead of a limit on what it receives.
const receivedBurst = 100 * time.Millisecond

// direction returns the direction of the limit around the one of a program.
func (g *generated) direction() string {
	if g.receives {
		return "down"
	}
	return "up"
}

// received returns how many bytes of payload the program has received.
func (g *generated) received() (bytes uint64, at testbed.Instant) {
	g.t.Helper()
	for try := 1; ; try++ {
		begin := testbed.Now()
		g.program.tell("?")
		n, err := strconv.ParseUint(g.hear(g.program, "received"), 10, 64)
		if err != nil {
			g.t.Fatal(err)
		}
		at := testbed.Now()
		if at.Sub(begin) < 20*time.Millisecond || try == 20 {
			return n, at
		}
	}
}

// countedReceived returns how many bytes a subject was counted as received, and whether it exists.
func (g *generated) countedReceived(subject string) (bytes uint64, there bool) {
	g.t.Helper()
	n, at := g.listed(subject)
	return n.Down.Bytes, !at.IsZero()
}

// awaitReceived waits until a limit that is set in a certain way must hold: what the peers were promised before has
// come then, and what had come before it the program has read.
func (g *generated) awaitReceived(p trafficgen.Program, how, subject string) {
	g.t.Helper()
	if how == "before" || how == "stays" || how == "raise" {
		return
	}
	limit := generatedLimit()
	if how == "lower" {
		limit = generatedLower()
	}
	begin := time.Now()
	eventually(receivedAwait/timeoutScale, func() bool {
		counted, _ := g.countedReceived(subject)
		before, from := g.received()
		time.Sleep(200 * time.Millisecond)
		now, to := g.received()
		countedNow, _ := g.countedReceived(subject)
		return float64(now-before) < 1.1*limit*to.Sub(from).Seconds() && now-before <= countedNow-counted
	})
	g.t.Logf("seed %d: %v after the limit (%s)", p.Seed, time.Since(begin).Round(time.Millisecond), how)
}

// windowReceived measures for a second, and returns the errors.
func (g *generated) windowReceived(p trafficgen.Program, subject string, limit float64) error {
	g.t.Helper()
	sent, came := g.others()
	counted, _ := g.countedReceived(subject)
	bytes, begin := g.received()
	last, at := bytes, begin
	var each []string
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		n, now := g.received()
		each = append(each, fmt.Sprintf("%.2f", float64(n-last)/limit/now.Sub(at).Seconds()))
		last, at = n, now
	}
	countedNow, there := g.countedReceived(subject)
	sentNow, cameNow := g.others()
	if !there {
		return fmt.Errorf("%s is not there: %s", subject, g.netnice("ls").out)
	}
	took := at.Sub(begin).Seconds()
	got, charged := float64(last-bytes), float64(countedNow-counted)
	g.t.Logf("seed %d: %.3f of the limit received, charged %.4f of it", p.Seed, got/limit/took, charged/got)
	var err error
	if most := limit * (1.02*took + receivedBurst.Seconds()); got > most {
		err = fmt.Errorf("%.0f bytes of payload in %.3f s, %.3f of the limit; %.0f may come: %w", got, took, got/limit/took, most, errTooMuch)
	}
	if charged < got-0.05*limit {
		err = errors.Join(err, fmt.Errorf("%.0f bytes of payload came, and %.0f were counted", got, charged))
	}
	if lost := (sentNow - sent) - (cameNow - came); sentNow-sent < 20 || lost > 1+(sentNow-sent)/20 {
		err = errors.Join(err, fmt.Errorf("of %d datagrams to another program %d did not come", sentNow-sent, lost))
	}
	if err != nil {
		err = fmt.Errorf("%w; each 100 ms, of the limit: %s", err, strings.Join(each, " "))
	}
	return err
}
