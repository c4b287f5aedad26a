package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// EventsPath is the call that is answered as long as the caller reads.
const EventsPath = "/v1/events"

// events streams events, a JSON object a line, until the caller hangs up or the daemon leaves.
func (s server) events(w http.ResponseWriter, r *http.Request) {
	actor, ok := auth.FromContext(r.Context())
	if !ok {
		writeError(w, auth.Denied("the caller is unknown", "connect to the daemon's unix socket"))
		return
	}
	if err := onlyQuery(r); err != nil {
		writeError(w, err)
		return
	}
	if r.ContentLength != 0 { // the server would wait for it without a limit of time
		writeError(w, badRequest("events are asked for without a body"))
		return
	}
	auth.Streams(r.Context())
	conn := http.NewResponseController(w)
	// The server's time limits are for calls that end.
	for _, err := range []error{conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})} {
		if err != nil {
			writeError(w, fmt.Errorf("answer for long: %w", err))
			return
		}
	}
	// A caller that no longer reads does not keep the daemon from leaving.
	cut := func() { _ = conn.SetWriteDeadline(time.Now()) }
	defer context.AfterFunc(r.Context(), cut)()
	out := json.NewEncoder(w)
	begun := false
	err := s.Events(r.Context(), actor, cut, func(list []api.Event) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		for _, e := range list {
			if err := out.Encode(e); err != nil {
				return err
			}
		}
		return conn.Flush()
	})
	if err != nil && !begun {
		writeError(w, err)
	}
}
