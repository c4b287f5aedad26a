package clienttest

import (
	"encoding/json"
	"net/http"

	"github.com/netnice/netnice/api"
)

// SetEvents says what whoever listens first is told; then the stream ends, and later ones
// are refused.
func (d *Daemon) SetEvents(list ...api.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = list
}

// HoldEvents keeps the stream open behind the last of them, until whoever listens has gone.
func (d *Daemon) HoldEvents() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = true
}

func (d *Daemon) getEvents(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	events, hold := d.events, d.hold
	d.events = nil
	d.mu.Unlock()
	if events == nil {
		answer(w, http.StatusForbidden, api.Error{Code: api.CodeDenied, Message: "you listen to events already", Hint: "end one"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	for _, e := range events {
		_ = out.Encode(e)
	}
	if hold {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}
