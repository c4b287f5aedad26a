package apiserver

import (
	"net/http"
	"strconv"

	"github.com/netnice/netnice/internal/auth"
)

func (s server) rules(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	return s.Rules(r.Context(), by)
}

func (s server) reloadRules(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	return s.ReloadRules(r.Context(), by)
}

func (s server) testRules(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r, "pid"); err != nil {
		return nil, err
	}
	text := r.URL.Query().Get("pid")
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 {
		return nil, badRequest("pid=%q: want the number of a process", text)
	}
	return s.TestRules(r.Context(), by, pid)
}
