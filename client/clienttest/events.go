package clienttest

import (
	"encoding/json"
	"net/http"

	"github.com/netnice/netnice/api"
)

// SetEvents sets the events for the first listener. The stream ends after them, and later listeners are refused.
func (d *Daemon) SetEvents(list ...api.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = list
}

// HoldEvents keeps the stream open after the last event, until the listener has gone.
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
