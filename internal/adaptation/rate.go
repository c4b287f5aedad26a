package adaptation

import (
	"context"
	"errors"
	"fmt"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation/hostpath"
)

// firstRate returns the starting rate: the rate of the request, else the present rate, else a measured one.
func (t *Table) firstRate(ctx context.Context, a *entry, path hostpath.Path) (rate uint64, err error) {
	rate = a.Start
	if rate == 0 {
		t.mu.Lock()
		if old := t.list[a.key()]; old != nil {
			rate = uint64(old.state.Rate)
		}
		t.mu.Unlock()
	}
	if rate == 0 {
		if a.first, err = path.Measure(ctx); err != nil {
			return 0, measureError(a, err)
		}
		rate = a.first.Start()
	}
	return a.bounded(rate), nil
}

// bounded returns a rate within the bounds of the request.
func (h *settings) bounded(rate uint64) uint64 {
	rate = max(rate, h.Least)
	if h.Most > 0 {
		rate = min(rate, h.Most)
	}
	return rate
}

func measureError(a *entry, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return err
	}
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("the path to %s cannot be measured: %v", a.Address, err), Hint: "give a rate to begin with: netnice adapt " + a.Address.String() + " --start 1mbit", Cause: err}
}
