package clienttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
)

// capacity is two processors, in per cent of one.
const capacity = 200

func (d *Daemon) putPower(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var req api.PowerRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: err.Error()})
		return
	}
	if d.deny != nil {
		answer(w, api.HTTPStatus(d.deny.Code), d.deny)
		return
	}
	if req.Power > capacity {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("a power of %d is out of range", req.Power), Hint: "netnice power --help"})
		return
	}
	at := slices.IndexFunc(d.powers, func(p api.Power) bool { return p.PID == req.PID })
	p := api.Power{
		PID: req.PID, Name: "test", Power: req.Power, Owners: []string{"admin"}, Processes: 1, Percent: 12.34, Group: "/sys/fs/cgroup/cpu/netnice-cpu-1",
		Since: time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC), Guaranteed: req.Power > 0 || req.SliceNS+req.AutoBytesPerSec > 0,
		PeriodNS: req.PeriodNS, SliceNS: req.SliceNS, Reserved: req.SliceNS+req.AutoBytesPerSec > 0,
		Extra: req.Extra, SlotNS: req.SlotNS, Strict: req.Strict,
	}
	if req.Strict {
		p.NoDeadline = "it has 2 threads"
	}
	if req.Power > 0 {
		p.PeriodNS, p.SliceNS = 20e6, uint64(req.Power)*200_000
	}
	if req.AutoBytesPerSec > 0 {
		p.PeriodNS, p.SliceNS = 20e6, 5e6
		p.Auto = &api.PowerAuto{RateBytesPerSec: req.AutoBytesPerSec, MeasuredBytesPerSec: req.AutoBytesPerSec / 2, MeasuredPercent: 10, PercentPerMbit: 0.05, Margin: 1.25}
	}
	out := api.PowerResponse{Version: api.Version, Changed: true, Power: &p}
	if req.Power == 0 && !p.Reserved {
		out.Power = nil
	}
	if !req.DryRun {
		if at >= 0 {
			d.powers = slices.Delete(d.powers, at, at+1)
		}
		if out.Power != nil {
			d.powers = append(d.powers, p)
		}
	}
	answer(w, http.StatusOK, out)
}

func (d *Daemon) sortedPowers() []api.Power {
	return slices.SortedFunc(slices.Values(d.powers), func(a, b api.Power) int { return cmp.Compare(a.PID, b.PID) })
}

func (d *Daemon) getPowers(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := api.PowerList{Version: api.Version, Time: time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC), Powers: []api.Power{}, CapacityPercent: capacity}
	list.Powers = append(list.Powers, d.sortedPowers()...)
	for _, p := range list.Powers {
		if p.Guaranteed {
			list.GuaranteedPercent += float64(p.SliceNS) / float64(p.PeriodNS) * 100
		}
	}
	answer(w, http.StatusOK, list)
}
