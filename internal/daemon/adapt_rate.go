package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/netnice/netnice/api"
)

// firstRate returns the starting rate: the rate of the request, else the present rate, else a measured one.
func (d *Daemon) firstRate(ctx context.Context, a *adapted, path Path) (rate uint64, err error) {
	rate = a.Start
	if rate == 0 {
		d.adapts.mu.Lock()
		if old := d.adapts.list[a.key()]; old != nil {
			rate = uint64(old.state.Rate)
		}
		d.adapts.mu.Unlock()
	}
	if rate == 0 {
		if a.first, err = path.Measure(ctx); err != nil {
			return 0, adaptError(a, err)
		}
		rate = a.first.start()
	}
	return a.bounded(rate), nil
}

// start returns the starting rate for a measured path, in bytes/s.
func (m Measured) start() uint64 {
	rate := min(m.BytesPerSec, adaptStartMost)
	if m.Full {
		rate = max(rate, adaptStartFull)
	}
	return rate
}

// bounded returns a rate within the bounds of the request.
func (h *adaptHow) bounded(rate uint64) uint64 {
	rate = max(rate, h.Least)
	if h.Most > 0 {
		rate = min(rate, h.Most)
	}
	return rate
}

func adaptError(a *adapted, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("the path to %s cannot be measured: %v", a.Address, err), Hint: "give a rate to begin with: netnice adapt " + a.Address.String() + " --start 1mbit", Cause: err}
}
