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

func (d *Daemon) getEvents(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events == nil {
		answer(w, http.StatusForbidden, api.Error{Code: api.CodeDenied, Message: "you listen to events already", Hint: "end one"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	for _, e := range d.events {
		_ = out.Encode(e)
	}
	d.events = nil
}
