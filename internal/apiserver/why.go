package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// Bounds of the duration of a measurement.
const (
	usualOver = time.Second
	leastOver = 100 * time.Millisecond
	mostOver  = 5 * time.Second // less than the server's time to read a request
)

func (s server) why(by auth.Actor, r *http.Request) (api.Why, error) {
	query := r.URL.Query()
	pid, err := queryPID(r)
	if err != nil {
		return api.Why{}, err
	}
	fd := -1
	if text := query.Get("fd"); text != "" {
		if fd, err = strconv.Atoi(text); err != nil || fd < 0 {
			return api.Why{}, badRequest("fd=%q: want the number of an open file", text)
		}
	}
	over := usualOver
	if text := query.Get("over"); text != "" {
		if over, err = time.ParseDuration(text); err != nil || over < leastOver || over > mostOver {
			return api.Why{}, badRequest("over=%q: want a time from %v to %v", text, leastOver, mostOver)
		}
	}
	return s.Why(r.Context(), by, pid, fd, over)
}
