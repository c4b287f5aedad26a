package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// backend records its last call and answers with err.
type backend struct {
	err   error
	asked string
	by    auth.Actor
}

func (b *backend) Status(context.Context) (api.Status, error) {
	b.asked = "status"
	return api.Status{Version: api.Version}, b.err
}

func (b *backend) Nodes(_ context.Context, by auth.Actor) (api.NodeList, error) {
	b.asked, b.by = "nodes", by
	return api.NodeList{Version: api.Version}, b.err
}

func (b *backend) NodesFor(_ context.Context, by auth.Actor, s api.Subject) (api.NodeList, error) {
	b.asked, b.by = "nodes "+s.String(), by
	return api.NodeList{Version: api.Version}, b.err
}

func (b *backend) Set(_ context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error) {
	b.asked, b.by = "set "+req.Subject.String(), by
	return api.SetResponse{Version: api.Version}, b.err
}

func (b *backend) Remove(_ context.Context, by auth.Actor, s api.Subject, dryRun bool) (api.SetResponse, error) {
	b.asked, b.by = fmt.Sprint("remove ", s, " ", dryRun), by
	return api.SetResponse{Version: api.Version}, b.err
}

func (b *backend) Rules(_ context.Context, by auth.Actor) (api.RuleList, error) {
	b.asked, b.by = "rules", by
	return api.RuleList{Version: api.Version}, b.err
}

func (b *backend) ReloadRules(_ context.Context, by auth.Actor) (api.RuleList, error) {
	b.asked, b.by = "reload rules", by
	return api.RuleList{Version: api.Version}, b.err
}

func (b *backend) TestRules(_ context.Context, by auth.Actor, pid int) (api.RuleTest, error) {
	b.asked, b.by = fmt.Sprint("test rules ", pid), by
	return api.RuleTest{Version: api.Version}, b.err
}

func (b *backend) Why(_ context.Context, by auth.Actor, pid, fd int, over time.Duration) (api.Why, error) {
	b.asked, b.by = fmt.Sprint("why ", pid, " ", fd, " ", over), by
	return api.Why{Version: api.Version}, b.err
}

func (b *backend) Events(_ context.Context, by auth.Actor, _ func(), send func([]api.Event) error) error {
	b.asked, b.by = "events", by
	if b.err != nil {
		return b.err
	}
	return send([]api.Event{{Type: api.EventHello}, {Type: api.EventMissed, Count: 3}})
}

func (b *backend) SetPower(_ context.Context, by auth.Actor, req api.PowerRequest) (api.PowerResponse, error) {
	b.asked, b.by = fmt.Sprintf("power %d %d", req.PID, req.Power), by
	return api.PowerResponse{}, b.err
}

func (b *backend) SetAdapt(_ context.Context, by auth.Actor, req api.AdaptRequest) (api.AdaptList, error) {
	b.asked, b.by = fmt.Sprintf("adapt %s %v", req.Host, req.Off), by
	return api.AdaptList{}, b.err
}

func (b *backend) Adapted(_ context.Context, by auth.Actor) (api.AdaptList, error) {
	b.asked, b.by = "adapted", by
	return api.AdaptList{}, b.err
}

func (b *backend) SetSystem(_ context.Context, by auth.Actor, req api.SystemRequest) (api.System, error) {
	b.asked, b.by = fmt.Sprintf("set system, meter %t", req.InputMeter != nil && *req.InputMeter), by
	return api.System{}, b.err
}

func (b *backend) System(context.Context) (api.System, error) {
	b.asked = "system"
	return api.System{}, b.err
}

func (b *backend) Powers(context.Context) (api.PowerList, error) {
	b.asked = "powers"
	return api.PowerList{}, b.err
}

func (b *backend) Down(_ context.Context, by auth.Actor) error {
	b.asked, b.by = "down", by
	return b.err
}

var bob = auth.Actor{UID: 1000, GID: 1000, PID: 7}

func call(b *backend, method, target, body string) (int, api.Error) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r = r.WithContext(auth.WithActor(r.Context(), bob))
	w := httptest.NewRecorder()
	Handler(b).ServeHTTP(w, r)
	var e api.Error
	_ = json.Unmarshal(w.Body.Bytes(), &e)
	return w.Code, e
}

func TestCalls(t *testing.T) {
	for _, c := range []struct{ method, target, body, asked string }{
		{"GET", "/v1/status", "", "status"},
		{"GET", "/v1/nodes", "", "nodes"},
		{"GET", "/v1/nodes?subject=pid:5", "", "nodes pid:5"},
		{"GET", "/v1/nodes?subject=cgroup:%2Fa%2Fb", "", "nodes cgroup:/a/b"},
		{"PUT", "/v1/limits", `{"subject":{"kind":"host"},"wish":{"up_bytes_per_sec":1}}`, "set host"},
		{"DELETE", "/v1/limits?subject=user:bob", "", "remove user:bob false"},
		{"DELETE", "/v1/limits?subject=user:bob&dry_run=true", "", "remove user:bob true"},
		{"GET", "/v1/adapt", "", "adapted"},
		{"GET", "/v1/rules", "", "rules"},
		{"GET", "/v1/rules/test?pid=7", "", "test rules 7"},
		{"GET", "/v1/why?pid=7", "", "why 7 -1 1s"},
		{"GET", "/v1/why?pid=7&fd=3&over=250ms", "", "why 7 3 250ms"},
		{"GET", "/v1/system", "", "system"},
		{"PUT", "/v1/system", `{"input_meter":true}`, "set system, meter true"},
		{"POST", "/v1/down", "", "down"},
	} {
		b := &backend{}
		status, e := call(b, c.method, c.target, c.body)
		require.Equal(t, http.StatusOK, status, "%s: %v", c.target, e)
		require.Equal(t, c.asked, b.asked)
		if c.asked != "status" && c.asked != "system" { // these answers are the same for everybody
			require.Equal(t, bob, b.by, c.target)
		}
	}
}

func TestBadCalls(t *testing.T) {
	for _, c := range []struct {
		method, target, body string
		status               int
	}{
		{"GET", "/", "", 404},
		{"POST", "/v1/limits", "", 404},
		{"GET", "/v2/status", "", 404},
		{"GET", "/v1/nodes?subject=", "", 400},
		{"GET", "/v1/why", "", 400},
		{"GET", "/v1/events", "{", 400},
		{"GET", "/v1/why?pid=-1", "", 400},
		{"GET", "/v1/why?pid=7&fd=-3", "", 400},
		{"GET", "/v1/why?pid=7&over=1h", "", 400},
		{"GET", "/v1/nodes?subject=planet:mars", "", 400},
		{"GET", "/v1/nodes?subjekt=host", "", 400},
		{"DELETE", "/v1/limits", "", 400},
		{"DELETE", "/v1/limits?subject=host&dry_run=perhaps", "", 400},
		{"PUT", "/v1/limits", "", 400},
		{"PUT", "/v1/limits", "{", 400},
		{"PUT", "/v1/limits?x=1", `{}`, 400},
		{"PUT", "/v1/limits", `{"surprise":1}`, 400},
		{"PUT", "/v1/limits", `{"wish":{"up_bytes_per_sec":-1}}`, 400},
		{"PUT", "/v1/limits", `{"wish":{"up_bytes_per_sec":18446744073709551616}}`, 400},
		{"PUT", "/v1/limits", `{}{}`, 400},
		{"PUT", "/v1/limits", `{"subject":{"kind":"user","id":"` + strings.Repeat("x", auth.MaxName+1) + `"}}`, 400},
		{"GET", "/v1/nodes?subject=user:" + strings.Repeat("x", auth.MaxName+1), "", 400},
		{"PUT", "/v1/limits", `{"subject":{"kind":"` + strings.Repeat("x", auth.MaxAdminBody) + `"}}`, 400},
	} {
		b := &backend{}
		status, e := call(b, c.method, c.target, c.body)
		require.Equal(t, c.status, status, c.target)
		require.NotEmpty(t, e.Code)
		require.NotEmpty(t, e.Message)
		require.Empty(t, b.asked)
	}
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{auth.Denied("no", "sudo netnice down"), 403, api.CodeDenied},
		{fmt.Errorf("set: %w", &api.Error{Code: api.CodeNotFound, Message: "m"}), 404, api.CodeNotFound},
		{&api.Error{Code: api.CodeConflict, Message: "m"}, 409, api.CodeConflict},
		{fmt.Errorf("set: %w", enforce.ErrNotSupported), 501, api.CodeNotSupported},
		{errors.New("broken"), 500, api.CodeInternal},
	} {
		status, e := call(&backend{err: c.err}, "GET", "/v1/status", "")
		require.Equal(t, c.status, status)
		require.Equal(t, c.code, e.Code)
		require.NotEmpty(t, e.Message)
	}
}

func TestNobodyIsRefused(t *testing.T) {
	b := &backend{}
	w := httptest.NewRecorder()
	Handler(b).ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Empty(t, b.asked)
}

func TestServerIsBounded(t *testing.T) {
	s := NewServer(&backend{}, slog.New(slog.DiscardHandler))
	require.NotZero(t, s.ReadHeaderTimeout)
	require.NotZero(t, s.ReadTimeout)
	require.NotZero(t, s.WriteTimeout)
	require.NotZero(t, s.IdleTimeout)
	require.NotZero(t, s.MaxHeaderBytes)
}

// The status says whether the caller is an administrator.
func TestStatusAdministrator(t *testing.T) {
	for _, c := range []struct {
		by   auth.Actor
		want bool
	}{{bob, false}, {auth.Actor{UID: 1000, Admin: true}, true}, {auth.Actor{}, true}} {
		r := httptest.NewRequest(http.MethodGet, "/v1/status", nil)
		w := httptest.NewRecorder()
		Handler(new(backend)).ServeHTTP(w, r.WithContext(auth.WithActor(r.Context(), c.by)))
		var got api.Status
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Equal(t, c.want, got.Administrator, "%+v", c.by)
	}
}
