package apiserver

import (
	"net/http"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

func (s server) setSystem(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	var req api.SystemRequest
	if err := readBody(r, &req); err != nil {
		return nil, err
	}
	return s.SetSystem(r.Context(), by, req)
}

func (s server) system(_ auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	return s.System(r.Context())
}
