package load

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/lab/internal/bed"
	"github.com/netnice/netnice/lab/internal/capture"
)

// Slot is the length of tender's time-slots.
const Slot = time.Millisecond

// rhythm is the time until slots are regular.
const rhythm = 4 * time.Second

// Arrivals starts the sender and gives it n per cent of a processor in slots (100: leaves it unchanged). It returns
// the packets of its connection that arrive in that time, and ends the sender.
func (c Calculating) Arrivals(ctx context.Context, b *bed.Bed, pair *testbed.Pair, n int, length time.Duration) (packets []capture.Packet, err error) {
	cmd, err := c.Start(ctx, pair.A)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Kill(cmd)) }()
	if n < 100 {
		if _, err := b.Netnice(ctx, "power", strconv.Itoa(cmd.Process.Pid), strconv.Itoa(n), "--slots", Slot.String()); err != nil {
			return nil, err
		}
	}
	if err := testbed.Sleep(ctx, rhythm); err != nil {
		return nil, err
	}
	recording, err := capture.Start(pair.B)
	if err != nil {
		return nil, err
	}
	if err := testbed.Sleep(ctx, length); err != nil {
		return nil, err
	}
	all, err := recording.Stop()
	for _, p := range all {
		if p.To == c.To.Port() {
			packets = append(packets, p)
		}
	}
	return packets, err
}
