package clienttest

import (
	"net/http"

	"github.com/netnice/netnice/api"
)

// SetWhy sets the answer about every process.
func (d *Daemon) SetWhy(w api.Why) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.why = &w
}

func (d *Daemon) getWhy(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why == nil {
		answer(w, http.StatusNotFound, api.Error{Code: api.CodeNotFound, Message: "no process " + r.URL.Query().Get("pid"), Hint: "ps -e"})
		return
	}
	answer(w, http.StatusOK, d.why)
}
