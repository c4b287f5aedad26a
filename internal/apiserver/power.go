package apiserver

import (
	"net/http"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

func (s server) setPower(by auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	var req api.PowerRequest
	if err := readBody(r, &req); err != nil {
		return nil, err
	}
	return s.SetPower(r.Context(), by, req)
}

func (s server) powers(_ auth.Actor, r *http.Request) (any, error) {
	if err := onlyQuery(r); err != nil {
		return nil, err
	}
	return s.Powers(r.Context())
}
