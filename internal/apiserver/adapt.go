package apiserver

import (
	"net/http"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

func (s server) setAdapt(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	var req api.AdaptRequest
	if err := readBody(r, &req); err != nil {
		return nil, err
	}
	return s.SetAdapt(r.Context(), by, req)
}

func (s server) adapted(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	return s.Adapted(r.Context(), by)
}
