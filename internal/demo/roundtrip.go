package demo

import (
	"context"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// roundTrip runs the same traffic over two links of the same kind at the same rate, one limited by netnice and one
// by HTB.
func (p *program) roundTrip(ctx context.Context, length time.Duration) error {
	if err := p.stage.setUpHTB(limit); err != nil {
		return err
	}
	cfg := testbed.SenderConfig{Connections: connections}
	limited, err := p.stage.sender(p.stage.pair, portLimited, cfg)
	if err != nil {
		return err
	}
	queued, err := p.stage.sender(p.stage.other, testbed.DefaultPort, cfg)
	if err != nil {
		return err
	}
	p.stage.limited = append(p.stage.limited, strconv.Itoa(limited.PID()))
	if _, _, err := p.command(ctx, limit, "set", "--pid", strconv.Itoa(limited.PID()), "--up", limitText); err != nil {
		return err
	}
	for _, tx := range []*testbed.Sender{limited, queued} {
		if _, err := tx.Start(); err != nil {
			return err
		}
	}
	p.draw(func(from, to testbed.Instant) []Part {
		return []Part{
			roundTripPart("netnice", median(limited, from, to), p.stage.rx.Goodput(portLimited, from, to)*ipFactor),
			roundTripPart("HTB", median(queued, from, to), p.stage.otherRx.Goodput(0, from, to)*ipFactor),
		}
	})
	from := p.settled()
	if err := testbed.Sleep(ctx, length); err != nil {
		return err
	}
	if err := p.held(limit, from, limited); err != nil {
		return err
	}
	to := testbed.Now()
	ours, theirs := median(limited, from, to), median(queued, from, to)
	for _, f := range roundTripFigures(ours, theirs) {
		p.figure(f)
	}
	return nil
}

// roundTripFigures judges netnice's round trip by HTB's, which also is a figure.
func roundTripFigures(ours, theirs time.Duration) []Figure {
	f := Figure{What: "RTT, netnice", Value: ours.Seconds() * 1e3, Unit: "ms", Text: formatTrip(ours), Wanted: "a tenth of HTB's", Verdict: Near}
	switch {
	case ours <= 0 || ours >= theirs:
		f.Verdict = Off
	case ours <= theirs/10:
		f.Verdict = Good
	}
	return []Figure{f, {
		What: "RTT, HTB", Value: theirs.Seconds() * 1e3, Unit: "ms", Text: formatTrip(theirs), Wanted: "to compare", Verdict: Good,
	}}
}

// median returns the median of a sender's smoothed round trips.
func median(tx *testbed.Sender, from, to testbed.Instant) time.Duration {
	return testbed.Percentile(tx.RTT(from, to), 50)
}
