// Package client talks to netnice's daemon over its unix socket; the command
// line and every other front end use only this. It owns the HTTP calls and the
// two ways in which they fail (ErrNoDaemon, *api.Error), starts nothing and
// keeps no state beside its connections.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/netnice/netnice/api"
)

// DefaultSocket is where the daemon listens unless it is told otherwise.
const DefaultSocket = "/run/netnice/netnice.sock"

// ErrNoDaemon says that nobody answers on the socket. Every request may be
// sent again: they are idempotent.
var ErrNoDaemon = errors.New("no daemon is running")

// maxAnswer bounds what is read of an answer, in bytes: 16384 nodes of about
// 1 KB, four times over.
const maxAnswer = 64 << 20

// Client is safe for concurrent use. Its errors are *api.Error where the
// daemon answered with one, wrap ErrNoDaemon where nobody listens or the daemon
// left in the middle, and are plain otherwise.
type Client struct {
	http   http.Client
	socket string
}

// New returns a client for the daemon at socketPath; it connects on first use.
func New(socketPath string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socketPath)
	}
	transport := &http.Transport{DialContext: dial, IdleConnTimeout: 10 * time.Second, MaxIdleConns: 2}
	return &Client{http: http.Client{Transport: transport}, socket: socketPath}
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status describes the daemon.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	out := new(api.Status)
	return out, c.call(ctx, http.MethodGet, "/v1/status", nil, out)
}

// Nodes lists every limited subject.
func (c *Client) Nodes(ctx context.Context) (*api.NodeList, error) {
	out := new(api.NodeList)
	return out, c.call(ctx, http.MethodGet, "/v1/nodes", nil, out)
}

// NodesFor lists the nodes that hold for a subject, innermost first. Where none
// does the error is an *api.Error with CodeNoLimit.
func (c *Client) NodesFor(ctx context.Context, s api.Subject) (*api.NodeList, error) {
	out := new(api.NodeList)
	query := url.Values{"subject": {s.String()}}
	return out, c.call(ctx, http.MethodGet, "/v1/nodes?"+query.Encode(), nil, out)
}

// Set states a wish for a subject.
func (c *Client) Set(ctx context.Context, request api.SetRequest) (*api.SetResponse, error) {
	out := new(api.SetResponse)
	return out, c.call(ctx, http.MethodPut, "/v1/limits", request, out)
}

// Unset takes the caller's wishes for a subject back; with dryRun it only says
// what would change.
func (c *Client) Unset(ctx context.Context, s api.Subject, dryRun bool) (*api.SetResponse, error) {
	out := new(api.SetResponse)
	query := url.Values{"subject": {s.String()}}
	if dryRun {
		query.Set("dry_run", "true")
	}
	return out, c.call(ctx, http.MethodDelete, "/v1/limits?"+query.Encode(), nil, out)
}

// SetPower says what a process and its descendants get of the processors.
func (c *Client) SetPower(ctx context.Context, request api.PowerRequest) (*api.PowerResponse, error) {
	out := new(api.PowerResponse)
	return out, c.call(ctx, http.MethodPut, "/v1/power", request, out)
}

// SetAdapt has what is sent to a host follow what the path there carries, or not any more.
func (c *Client) SetAdapt(ctx context.Context, request api.AdaptRequest) (*api.AdaptList, error) {
	out := new(api.AdaptList)
	return out, c.call(ctx, http.MethodPut, "/v1/adapt", request, out)
}

// Adapted lists the addresses to which that is done.
func (c *Client) Adapted(ctx context.Context) (*api.AdaptList, error) {
	out := new(api.AdaptList)
	return out, c.call(ctx, http.MethodGet, "/v1/adapt", nil, out)
}

// SetSystem says what holds for the whole machine.
func (c *Client) SetSystem(ctx context.Context, request api.SystemRequest) (*api.System, error) {
	out := new(api.System)
	return out, c.call(ctx, http.MethodPut, "/v1/system", request, out)
}

// System is what holds for the whole machine.
func (c *Client) System(ctx context.Context) (*api.System, error) {
	out := new(api.System)
	return out, c.call(ctx, http.MethodGet, "/v1/system", nil, out)
}

// Powers lists the processes that have a share of the processors.
func (c *Client) Powers(ctx context.Context) (*api.PowerList, error) {
	out := new(api.PowerList)
	return out, c.call(ctx, http.MethodGet, "/v1/power", nil, out)
}

// Rules lists the rules that the daemon follows.
func (c *Client) Rules(ctx context.Context) (*api.RuleList, error) {
	out := new(api.RuleList)
	return out, c.call(ctx, http.MethodGet, "/v1/rules", nil, out)
}

// ReloadRules has the daemon read the files again.
func (c *Client) ReloadRules(ctx context.Context) (*api.RuleList, error) {
	out := new(api.RuleList)
	return out, c.call(ctx, http.MethodPost, "/v1/rules/reload", nil, out)
}

// TestRules asks which rules match a process.
func (c *Client) TestRules(ctx context.Context, pid int) (*api.RuleTest, error) {
	out := new(api.RuleTest)
	query := url.Values{"pid": {strconv.Itoa(pid)}}
	return out, c.call(ctx, http.MethodGet, "/v1/rules/test?"+query.Encode(), nil, out)
}

// Why asks what holds the connections of a process, or the one that fd is (-1: all),
// measured over a while.
func (c *Client) Why(ctx context.Context, pid, fd int, over time.Duration) (*api.Why, error) {
	out := new(api.Why)
	query := url.Values{"pid": {strconv.Itoa(pid)}, "over": {over.String()}}
	if fd >= 0 {
		query.Set("fd", strconv.Itoa(fd))
	}
	return out, c.call(ctx, http.MethodGet, "/v1/why?"+query.Encode(), nil, out)
}

// Down lifts every limit and ends the daemon.
func (c *Client) Down(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/down", nil, nil)
}

// call sends one request and decodes the answer into out, if out is not nil.
func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		payload = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://netnice"+path, payload)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.explain(err)
	}
	if response.StatusCode/100 != 2 {
		return decodeError(response, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the daemon's answer to %s %s: %w", method, path, err)
	}
	return nil
}

// decodeError makes an *api.Error of an answer that is not 2xx, whoever wrote it.
func decodeError(response *http.Response, text []byte) error {
	problem := new(api.Error)
	if err := json.Unmarshal(text, problem); err == nil && problem.Message != "" {
		return problem
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return &api.Error{
		Code:    api.CodeInternal,
		Message: strings.TrimSuffix(fmt.Sprintf("the daemon answered %s: %s", response.Status, line), ": "),
		Hint:    "netnice version, netnice status: are both of the same release?",
	}
}

// explain sorts the ways in which a connection fails.
func (c *Client) explain(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without `Put "http://netnice/..."`, which is no address of anybody
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (nobody listens on %s)", ErrNoDaemon, c.socket)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w (it left before it answered on %s)", ErrNoDaemon, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return &api.Error{
			Code:    api.CodeDenied,
			Message: "the daemon's socket " + c.socket + " is closed to you",
			Hint:    "sudo netnice ...",
		}
	}
	return fmt.Errorf("ask the daemon on %s: %w", c.socket, err)
}
