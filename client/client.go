// Package client talks to netnice's daemon over its unix socket; the command line and every other front end use only
// this. It owns the HTTP calls and the two ways in which they fail (ErrNoDaemon, *api.Error). It starts nothing and
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

// DefaultSocket is the path of the daemon's socket unless an option names another.
const DefaultSocket = "/run/netnice/netnice.sock"

// ErrNoDaemon says that no daemon answers on the socket. Callers may send every request again, since all are
// idempotent.
var ErrNoDaemon = errors.New("no daemon is running")

// maxAnswer bounds the bytes that are read of an answer: four times 16384 nodes of about 1 KB.
const maxAnswer = 64 << 20

// Client is safe for concurrent use. Its errors are *api.Error if the daemon has answered with one. They wrap
// ErrNoDaemon if no daemon listens, or if it leaves during the call. They are plain otherwise.
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

// Close closes idle connections.
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

// NodesFor lists the nodes that hold for a subject, innermost first. If none does, the error is an *api.Error with
// CodeNoLimit.
func (c *Client) NodesFor(ctx context.Context, s api.Subject) (*api.NodeList, error) {
	out := new(api.NodeList)
	query := url.Values{"subject": {s.String()}}
	return out, c.call(ctx, http.MethodGet, "/v1/nodes?"+query.Encode(), nil, out)
}

// Set requests limits for a subject.
func (c *Client) Set(ctx context.Context, request api.SetRequest) (*api.SetResponse, error) {
	out := new(api.SetResponse)
	return out, c.call(ctx, http.MethodPut, "/v1/limits", request, out)
}

// Unset removes the caller's limits from a subject; with dryRun it only says what would change.
func (c *Client) Unset(ctx context.Context, s api.Subject, dryRun bool) (*api.SetResponse, error) {
	out := new(api.SetResponse)
	query := url.Values{"subject": {s.String()}}
	if dryRun {
		query.Set("dry_run", "true")
	}
	return out, c.call(ctx, http.MethodDelete, "/v1/limits?"+query.Encode(), nil, out)
}

// SetPower sets the CPU share of a process and its descendants.
func (c *Client) SetPower(ctx context.Context, request api.PowerRequest) (*api.PowerResponse, error) {
	out := new(api.PowerResponse)
	return out, c.call(ctx, http.MethodPut, "/v1/power", request, out)
}

// SetAdapt makes the sending rate toward a host follow the capacity of the path, or ends that.
func (c *Client) SetAdapt(ctx context.Context, request api.AdaptRequest) (*api.AdaptList, error) {
	out := new(api.AdaptList)
	return out, c.call(ctx, http.MethodPut, "/v1/adapt", request, out)
}

// Adapted lists the addresses whose paths are followed.
func (c *Client) Adapted(ctx context.Context) (*api.AdaptList, error) {
	out := new(api.AdaptList)
	return out, c.call(ctx, http.MethodGet, "/v1/adapt", nil, out)
}

// SetSystem changes settings of the whole machine.
func (c *Client) SetSystem(ctx context.Context, request api.SystemRequest) (*api.System, error) {
	out := new(api.System)
	return out, c.call(ctx, http.MethodPut, "/v1/system", request, out)
}

// System returns the settings of the whole machine.
func (c *Client) System(ctx context.Context) (*api.System, error) {
	out := new(api.System)
	return out, c.call(ctx, http.MethodGet, "/v1/system", nil, out)
}

// Powers lists the processes that have a CPU share.
func (c *Client) Powers(ctx context.Context) (*api.PowerList, error) {
	out := new(api.PowerList)
	return out, c.call(ctx, http.MethodGet, "/v1/power", nil, out)
}

// Rules lists the rules that the daemon has read.
func (c *Client) Rules(ctx context.Context) (*api.RuleList, error) {
	out := new(api.RuleList)
	return out, c.call(ctx, http.MethodGet, "/v1/rules", nil, out)
}

// ReloadRules makes the daemon read the rule files again.
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

// Why asks what bounds the connections of a process, or the one that fd refers to (-1: all), measured over a while.
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

// decodeError makes an *api.Error of an answer that is not 2xx, also of one that is not the daemon's own.
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
		err = wrapped.Err // without `Put "http://netnice/..."`, which is no real address
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
