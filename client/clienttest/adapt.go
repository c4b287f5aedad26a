package clienttest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/netnice/netnice/api"
)

func (d *Daemon) putAdapt(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var req api.AdaptRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: err.Error()})
		return
	}
	at := slices.IndexFunc(d.adapted, func(a api.Adapted) bool {
		return a.Host == req.Host && (!req.NetnsNamed || a.Netns == req.Netns)
	})
	out := api.AdaptList{Version: api.Version, Changed: true, Adapted: []api.Adapted{}}
	switch {
	case d.deny != nil:
		answer(w, api.HTTPStatus(d.deny.Code), d.deny)
		return
	case req.Off && at < 0:
		answer(w, http.StatusNotFound, api.Error{Code: api.CodeNoLimit, Message: "no limit follows the path to " + req.Host, Hint: "netnice adapt"})
		return
	case req.Off:
		out.Adapted = append(out.Adapted, d.adapted[at])
	default:
		a := api.Adapted{
			Host: req.Host, Address: req.Host, By: "icmp-echo", Mode: "share", SharePPM: req.SharePPM, TCP: req.TCP, RateBytesPerSec: 5e6, SentBytesPerSec: 4e6,
			CapacityBytesPerSec: 10e6, LeastBytesPerSec: req.LeastBytesPerSec, MostBytesPerSec: req.MostBytesPerSec, BacklogNS: cmp.Or(req.BacklogNS, 1e9), BaseNS: 20e6, QueueNS: 4e6, AimNS: 4e6,
			Since: time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC),
		}
		if req.NetnsNamed { // else the caller's namespace is taken to be the daemon's
			a.Netns = req.Netns
		}
		if req.StartBytesPerSec != 0 {
			a.RateBytesPerSec = req.StartBytesPerSec
		}
		out.Adapted = append(out.Adapted, a)
	}
	if !req.DryRun {
		if at >= 0 {
			d.adapted = slices.Delete(d.adapted, at, at+1)
		}
		if !req.Off {
			d.adapted = append(d.adapted, out.Adapted...)
		}
	}
	answer(w, http.StatusOK, out)
}

func (d *Daemon) getAdapted(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer(w, http.StatusOK, api.AdaptList{
		Version: api.Version, Time: time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC), Adapted: append([]api.Adapted{}, d.adapted...),
	})
}
