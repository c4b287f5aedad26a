package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
)

// firstRate returns the starting rate: the rate of the request, else the present rate, else a measured one.
func (d *Daemon) firstRate(ctx context.Context, a *adapted, path hostpath.Path) (rate uint64, err error) {
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
		rate = a.first.Start()
	}
	return a.bounded(rate), nil
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
