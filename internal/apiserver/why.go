package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"github.com/netnice/netnice/internal/auth"
)

// Bounds of the duration of a measurement.
const (
	usualOver = time.Second
	leastOver = 100 * time.Millisecond
	mostOver  = 5 * time.Second // less than the server's time to read a request
)

func (s server) why(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r, "pid", "fd", "over"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	pid, err := strconv.Atoi(query.Get("pid"))
	if err != nil || pid < 1 {
		return nil, badRequest("pid=%q: want the number of a process", query.Get("pid"))
	}
	fd := -1
	if text := query.Get("fd"); text != "" {
		if fd, err = strconv.Atoi(text); err != nil || fd < 0 {
			return nil, badRequest("fd=%q: want the number of an open file", text)
		}
	}
	over := usualOver
	if text := query.Get("over"); text != "" {
		if over, err = time.ParseDuration(text); err != nil || over < leastOver || over > mostOver {
			return nil, badRequest("over=%q: want a time from %v to %v", text, leastOver, mostOver)
		}
	}
	return s.Why(r.Context(), by, pid, fd, over)
}
