// Package apiserver serves netnice's HTTP API: it reads requests, identifies the caller, and writes answers. It never
// decides and never keeps state; the Backend does both.
package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/account"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
)

// Backend is the interface that the handlers need. An error that is an *api.Error is sent as it is.
// enforce.ErrNotSupported becomes not_supported, and any other error internal.
type Backend interface {
	Status(ctx context.Context) (api.Status, error)
	// Nodes lists every node, outermost first, as the caller may see it.
	Nodes(ctx context.Context, by auth.Actor) (api.NodeList, error)
	// NodesFor lists the nodes that hold for a subject, innermost first; not_found if there are none.
	NodesFor(ctx context.Context, by auth.Actor, s api.Subject) (api.NodeList, error)
	Set(ctx context.Context, by auth.Actor, req api.SetRequest) (api.SetResponse, error)
	Remove(ctx context.Context, by auth.Actor, s api.Subject, dryRun bool) (api.SetResponse, error)
	// SetPower sets a process's CPU share, Powers lists all shares.
	SetPower(ctx context.Context, by auth.Actor, req api.PowerRequest) (api.PowerResponse, error)
	Powers(ctx context.Context) (api.PowerList, error)
	// SetAdapt lets the limit of the egress to a host follow the capacity of the path. Adapted lists these
	// hosts.
	SetAdapt(ctx context.Context, by auth.Actor, req api.AdaptRequest) (api.AdaptList, error)
	Adapted(ctx context.Context, by auth.Actor) (api.AdaptList, error)
	// SetSystem changes the settings of the whole machine, System returns them.
	SetSystem(ctx context.Context, by auth.Actor, req api.SystemRequest) (api.System, error)
	System(ctx context.Context) (api.System, error)
	Rules(ctx context.Context, by auth.Actor) (api.RuleList, error)
	ReloadRules(ctx context.Context, by auth.Actor) (api.RuleList, error)
	TestRules(ctx context.Context, by auth.Actor, pid int) (api.RuleTest, error)
	// Why measures which limits bind the connections of a process; fd -1 = all of them.
	Why(ctx context.Context, by auth.Actor, pid, fd int, over time.Duration) (api.Why, error)
	// Events calls send with events that concern the caller, until it fails, ctx ends or the daemon leaves. An error
	// before the first event is sent as an answer. With cut it ends a send that takes too long.
	Events(ctx context.Context, by auth.Actor, cut func(), send func([]api.Event) error) error
	// Down lifts every limit and makes the daemon leave once it has answered.
	Down(ctx context.Context, by auth.Actor) error
}

// Timeouts of a connection. Setting a limit on a machine with very many open connections takes the kernel a while,
// hence the long write.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 60 * time.Second
	idleTimeout   = 60 * time.Second
)

// NewServer returns an HTTP server for connections of an auth.Listener.
func NewServer(b Backend, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           Handler(b),
		ConnContext:       auth.ConnContext,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    auth.MaxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Handler returns the API. The caller must be in the request's context.
func Handler(b Backend) http.Handler {
	s := server{b}
	mux := http.NewServeMux()
	for _, route := range Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, route.handler(s))
	}
	none := s.with(func(_ auth.Actor, r *http.Request) (any, error) {
		return nil, &api.Error{
			Code:    api.CodeNotFound,
			Message: fmt.Sprintf("no such call: %.20s %.200s", r.Method, r.URL.Path),
			Hint:    "netnice status shows the version of the daemon",
		}
	})
	mux.HandleFunc("/", none)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "*" || r.Method == http.MethodConnect { // the mux answers these itself, with an empty body
			none(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

type server struct{ Backend }

// with turns a function that answers or fails into a handler.
func (server) with(f func(auth.Actor, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		actor, ok := auth.FromContext(r.Context())
		if !ok {
			writeError(w, auth.Denied("the caller is unknown", "connect to the daemon's unix socket"))
			return
		}
		most := int64(auth.MaxBody)
		if actor.Root() {
			most = auth.MaxAdminBody
		}
		if !actor.Root() {
			// A request of another user starts no process of the daemon's. All callers would have to wait for a name
			// service that is slow, or that has to answer many questions.
			r = r.WithContext(account.WithoutAsking(r.Context()))
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		answer, err := f(actor, r)
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

func (s server) status(ctx context.Context, by auth.Actor) (api.Status, error) {
	status, err := s.Status(ctx)
	status.Administrator = by.Root()
	return status, err
}

func (s server) nodes(by auth.Actor, r *http.Request) (api.NodeList, error) {
	if !r.URL.Query().Has("subject") {
		return s.Nodes(r.Context(), by)
	}
	subject, err := querySubject(r)
	if err != nil {
		return api.NodeList{}, err
	}
	return s.NodesFor(r.Context(), by, subject)
}

func (s server) set(ctx context.Context, by auth.Actor, request api.SetRequest) (api.SetResponse, error) {
	if len(request.Subject.ID) > auth.MaxName {
		return api.SetResponse{}, badRequest("the subject's name has more than %d bytes", auth.MaxName)
	}
	return s.Set(ctx, by, request)
}

// readBody decodes the one JSON object that is the body of a request.
func readBody(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return badRequest("the request's body: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the request's body holds more than one object")
	}
	return nil
}

func (s server) remove(by auth.Actor, r *http.Request) (api.SetResponse, error) {
	subject, err := querySubject(r)
	if err != nil {
		return api.SetResponse{}, err
	}
	dryRun := false
	if text := r.URL.Query().Get("dry_run"); text != "" {
		if dryRun, err = strconv.ParseBool(text); err != nil {
			return api.SetResponse{}, badRequest("dry_run=%q: want true or false", text)
		}
	}
	return s.Remove(r.Context(), by, subject, dryRun)
}

func (s server) down(ctx context.Context, by auth.Actor) (api.DownResponse, error) {
	return api.DownResponse{Version: api.Version}, s.Down(ctx, by)
}

func (s server) powers(ctx context.Context, _ auth.Actor) (api.PowerList, error) {
	return s.Powers(ctx)
}

func (s server) system(ctx context.Context, _ auth.Actor) (api.System, error) { return s.System(ctx) }

func querySubject(r *http.Request) (api.Subject, error) {
	subject, err := api.ParseSubject(r.URL.Query().Get("subject"))
	if err != nil {
		return api.Subject{}, badRequest("%v", err)
	}
	if len(subject.ID) > auth.MaxName {
		return api.Subject{}, badRequest("the subject's name has more than %d bytes", auth.MaxName)
	}
	return subject, nil
}

// onlyQuery refuses query parameters that the call does not have.
func onlyQuery(r *http.Request, allowed ...string) error {
	for key := range r.URL.Query() {
		known := false
		for _, a := range allowed {
			known = known || a == key
		}
		if !known {
			return badRequest("unknown parameter %q", key)
		}
	}
	return nil
}

// mostSaid bounds the part of a caller's request that an error message repeats, in bytes.
const mostSaid = 1000

func badRequest(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if len(text) > mostSaid {
		text = strings.ToValidUTF8(text[:mostSaid], "") + "..."
	}
	return &api.Error{Code: api.CodeBadRequest, Message: text}
}

// writeError sends err as an api.Error with the HTTP status of its code.
func writeError(w http.ResponseWriter, err error) {
	var answer *api.Error
	if !errors.As(err, &answer) {
		answer = &api.Error{Code: api.CodeInternal, Message: err.Error(), Hint: "journalctl -u netnice"}
		if errors.Is(err, enforce.ErrNotSupported) {
			answer.Code, answer.Hint = api.CodeNotSupported, "netnice doctor"
		}
	}
	writeJSON(w, api.HTTPStatus(answer.Code), answer)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status = http.StatusInternalServerError
		body = []byte(`{"code":"internal","message":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A caller that hangs up loses the answer.
	_, _ = w.Write(append(body, '\n'))
}
