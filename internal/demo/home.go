package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testbed/relay"
)

// This is the line of a home, each way, with the buffer of a modem. homeUp is the limit of the backup and
// of the download.
const (
	homeRate           = 5_000_000 // bytes per second
	homeBuffer         = homeRate / 5
	homeTrip           = 20 * time.Millisecond
	calm               = 2 * homeTrip // below it a call is good
	homeUp, homeUpText = 4e6, "4MB/s"
)

// home is a line that a call, a backup that is sent and a download share.
type home struct {
	pair     *testbed.Pair
	in, out  *testbed.Receiver // at home, and outside
	up, down *testbed.Sender
	call     *call
}

// setUpHome makes the line and all its users.
func (s *stage) setUpHome() (*home, error) {
	h := &s.home
	line := relay.RoundTrip(homeTrip)
	for _, way := range []*relay.Path{&line.AtoB, &line.BtoA} {
		way.Rate, way.Buffer = homeRate, homeBuffer
	}
	var err error
	if h.pair, err = testbed.NewDistantPair(line); err != nil {
		return nil, err
	}
	cfg := testbed.ReceiverConfig{Interval: counted}
	if h.in, err = testbed.StartReceiver(h.pair.A, cfg); err != nil {
		return nil, err
	}
	if h.out, err = testbed.StartReceiver(h.pair.B, cfg); err != nil {
		return nil, err
	}
	bulk := func(in *testbed.NetNS, to fmt.Stringer) (*testbed.Sender, error) {
		return testbed.StartSender(in, testbed.SenderConfig{
			To: fmt.Sprintf("%s:%d", to, testbed.DefaultPort), Congestion: "cubic", Connections: 2,
		})
	}
	if h.up, err = bulk(h.pair.A, h.pair.B4); err != nil {
		return nil, err
	}
	if h.down, err = bulk(h.pair.B, h.pair.A4); err != nil {
		return nil, err
	}
	h.call, err = startCall(h.pair.A, h.pair.B, h.pair.B4)
	return h, err
}

// close ends all parts that have begun.
func (h *home) close() []error {
	var errs []error
	if h.call != nil {
		errs = append(errs, h.call.close())
	}
	for _, tx := range []*testbed.Sender{h.up, h.down} {
		if tx != nil {
			errs = append(errs, tx.Close())
		}
	}
	for _, rx := range []*testbed.Receiver{h.in, h.out} {
		if rx != nil {
			errs = append(errs, rx.Close())
		}
	}
	if h.pair != nil {
		errs = append(errs, h.pair.Close())
	}
	return errs
}

// atHome plays a call: first with the delays that a backup and a download cause, then beside the same two with
// limits.
func (p *program) atHome(ctx context.Context, length time.Duration) error {
	h, err := p.stage.setUpHome()
	if err != nil {
		return err
	}
	p.draw(func(from, to testbed.Instant) []Part {
		return []Part{
			roundTripPart("call", h.call.median(from, to), callBytes*float64(time.Second/callInterval)),
			ratePart("backup, sent", h.out.Goodput(0, from, to)*ipFactor, homeRate),
			ratePart("download", h.in.Goodput(0, from, to)*ipFactor, homeRate),
		}
	})
	for _, tx := range []*testbed.Sender{h.up, h.down} {
		if _, err := tx.Start(); err != nil {
			return err
		}
	}
	begin := testbed.Now()
	if err := testbed.Sleep(ctx, length*2/5); err != nil {
		return err
	}
	before := h.call.median(begin.Add(length/5), testbed.Now().Add(-time.Second/2))
	for _, limited := range []struct {
		pid       int
		direction string
	}{{h.up.PID(), "--up"}, {h.in.PID(), "--down"}} {
		pid := strconv.Itoa(limited.pid)
		p.stage.limited = append(p.stage.limited, pid)
		if _, _, err := p.command(ctx, homeUp, "set", "--pid", pid, limited.direction, homeUpText); err != nil {
			return err
		}
	}
	// Data in the modem's buffers leave first.
	if err := testbed.Sleep(ctx, length/5); err != nil {
		return err
	}
	from := testbed.Now()
	if err := testbed.Sleep(ctx, length*2/5); err != nil {
		return err
	}
	to := testbed.Now().Add(-late)
	after := h.call.median(from, to)
	p.figure(Figure{
		What: "call, before", Value: before.Seconds() * 1e3, Unit: "ms", Text: formatTrip(before), Wanted: "to compare", Verdict: Good,
	})
	f := Figure{What: "call, with limits", Value: after.Seconds() * 1e3, Unit: "ms", Text: formatTrip(after), Wanted: "within " + formatTrip(calm)}
	if f.Verdict = judge(after.Seconds(), calm.Seconds(), 4*calm.Seconds()); after == 0 {
		f.Verdict = Off
	}
	p.figure(f)
	for _, way := range []struct {
		what string
		tx   *testbed.Sender
		rx   *testbed.Receiver
	}{{"sent", h.up, h.out}, {"received", h.down, h.in}} {
		infos, _, err := way.tx.Info()
		if err != nil {
			return err
		}
		rate := way.rx.Goodput(0, from, to) * testbed.HeadersOfAll(infos).IPFactor
		f := heldTo(homeUp, rate)
		f.What = way.what
		p.figure(f)
	}
	return nil
}
