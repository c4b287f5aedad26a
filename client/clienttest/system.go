package clienttest

import (
	"encoding/json"
	"net/http"

	"github.com/netnice/netnice/api"
)

func (d *Daemon) putSystem(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var req api.SystemRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.InputMeter == nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: "nothing to set"})
		return
	}
	if d.deny != nil {
		answer(w, api.HTTPStatus(d.deny.Code), d.deny)
		return
	}
	out := api.System{Version: api.Version, InputMeter: *req.InputMeter, Changed: *req.InputMeter == d.status.InputMeterOff}
	if !req.DryRun {
		d.status.InputMeterOff = !*req.InputMeter
	}
	answer(w, http.StatusOK, out)
}

func (d *Daemon) getSystem(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer(w, http.StatusOK, api.System{Version: api.Version, InputMeter: !d.status.InputMeterOff})
}
