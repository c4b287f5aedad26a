// Package clienttest is a daemon in memory for the tests of clients. It speaks the same HTTP as netnice's daemon, keeps
// requested limits in a list and touches nothing of the machine. It does not check the rights of callers.
package clienttest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/netnice/netnice/api"
)

// Daemon answers the calls of one client test. Make one with New.
type Daemon struct {
	mux *http.ServeMux

	mu       sync.Mutex
	status   api.Status
	nodes    []api.Node // in the order in which they were made
	powers   []api.Power
	adapted  []api.Adapted
	unknown  api.Unknown
	requests []api.SetRequest
	deny     *api.Error
	down     bool
	rules    api.RuleList
	test     api.RuleTest
	why      *api.Why
	events   []api.Event
	hold     bool // the stream of events stays open
	cut      bool // writing calls lose their connection once left is 0
	left     int
}

// New returns a daemon without any limit.
func New() *Daemon {
	d := &Daemon{mux: http.NewServeMux()}
	d.status = api.Status{
		Version: api.Version, Release: "test", PID: 4711, Kernel: "6.18.0",
		Since:    time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC),
		Programs: []api.Program{{Name: "nn_sockops", Attached: true, For: "paces TCP"}},
		Counters: map[string]uint64{"map_full": 0},
	}
	d.mux.HandleFunc("GET /v1/status", d.getStatus)
	d.mux.HandleFunc("GET /v1/nodes", d.getNodes)
	d.mux.HandleFunc("PUT /v1/limits", d.putLimits)
	d.mux.HandleFunc("DELETE /v1/limits", d.deleteLimits)
	d.mux.HandleFunc("PUT /v1/power", d.putPower)
	d.mux.HandleFunc("GET /v1/power", d.getPowers)
	d.mux.HandleFunc("PUT /v1/adapt", d.putAdapt)
	d.mux.HandleFunc("GET /v1/adapt", d.getAdapted)
	d.mux.HandleFunc("PUT /v1/system", d.putSystem)
	d.mux.HandleFunc("GET /v1/system", d.getSystem)
	d.mux.HandleFunc("GET /v1/rules", d.getRules)
	d.mux.HandleFunc("POST /v1/rules/reload", d.getRules)
	d.mux.HandleFunc("GET /v1/rules/test", d.getRulesTest)
	d.mux.HandleFunc("GET /v1/events", d.getEvents)
	d.mux.HandleFunc("GET /v1/why", d.getWhy)
	d.mux.HandleFunc("POST /v1/down", d.postDown)
	return d
}

// ServeHTTP makes Daemon an http.Handler.
func (d *Daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Put adds a node without any change, for tests of output.
func (d *Daemon) Put(n api.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nodes = append(d.nodes, n)
}

// SetUnknown sets the traffic without a known owner.
func (d *Daemon) SetUnknown(u api.Unknown) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unknown, d.status.Unknown = u, u
}

// Deny makes every writing call fail with e; nil ends that.
func (d *Daemon) Deny(e *api.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deny = e
}

// SetOnDemand sets whether the status says that the daemon runs on demand.
func (d *Daemon) SetOnDemand(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.OnDemand = on
}

// SetProblems sets the problems in the status.
func (d *Daemon) SetProblems(list ...api.Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Problems = list
}

// SetAdministrator sets whether the status says that the caller is an administrator.
func (d *Daemon) SetAdministrator(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Administrator = is
}

// CutAfter lets this many more writing calls about limits through; later ones lose their connection without an answer.
func (d *Daemon) CutAfter(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut, d.left = true, calls
}

// SetPID sets the daemon's pid in the status.
func (d *Daemon) SetPID(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.PID = pid
}

// Requests returns the bodies of all PUT /v1/limits so far.
func (d *Daemon) Requests() []api.SetRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]api.SetRequest(nil), d.requests...)
}

// IsDown says whether POST /v1/down was called.
func (d *Daemon) IsDown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.down
}

func (d *Daemon) getStatus(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Nodes, d.status.Powers = len(d.nodes), len(d.powers)
	answer(w, http.StatusOK, d.status)
}

func (d *Daemon) getNodes(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := api.NodeList{Version: api.Version, Time: time.Date(2026, 11, 21, 21, 0, 0, 0, time.UTC), Nodes: []api.Node{}, Unknown: d.unknown}
	text := r.URL.Query().Get("subject")
	if text == "" {
		list.Nodes = append(list.Nodes, d.nodes...)
		list.Powers = d.sortedPowers()
		answer(w, http.StatusOK, list)
		return
	}
	subject, err := api.ParseSubject(text)
	if err != nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: err.Error()})
		return
	}
	for i := d.find(subject); i >= 0; i = d.parent(i) {
		list.Nodes = append(list.Nodes, d.nodes[i])
	}
	if len(list.Nodes) == 0 {
		answer(w, http.StatusNotFound, noLimit(subject))
		return
	}
	answer(w, http.StatusOK, list)
}

func (d *Daemon) putLimits(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mayCut()
	var request api.SetRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: err.Error()})
		return
	}
	if fault := d.refuse(request); fault != nil {
		answer(w, api.HTTPStatus(fault.Code), fault)
		return
	}
	d.requests = append(d.requests, request)
	if request.Leave {
		left := api.SetResponse{Version: api.Version, Changed: true}
		for _, m := range request.Members {
			left.Left = append(left.Left, api.Left{PID: m.PID, Group: cmp.Or(request.Subject.ID, "fair-1")})
		}
		answer(w, http.StatusOK, left)
		return
	}
	if total := request.Wish.TotalBytesPerSec; total != nil && *total == 0 && request.Wish == (api.Wish{TotalBytesPerSec: total}) {
		answer(w, http.StatusOK, d.liftTotal(request))
		return
	}
	node, i := api.Node{ID: uint32(len(d.nodes) + 1), Subject: request.Subject, Weight: 100}, d.find(request.Subject)
	if i >= 0 {
		node = d.nodes[i]
	}
	apply(&node, request)
	if !request.DryRun {
		if i >= 0 {
			d.nodes[i] = node
		} else {
			d.nodes = append(d.nodes, node)
		}
	}
	response := api.SetResponse{Version: api.Version, Node: &node, Changed: true}
	if request.Wish.TotalBytesPerSec != nil {
		response.Warnings = []string{"only sending counts yet"}
	}
	answer(w, http.StatusOK, response)
}

// liftTotal removes the limit on both directions together from a subject; a node without any other limit goes.
func (d *Daemon) liftTotal(request api.SetRequest) api.SetResponse {
	response := api.SetResponse{Version: api.Version}
	i := d.find(request.Subject)
	if i < 0 {
		return response
	}
	node := d.nodes[i]
	apply(&node, request)
	response.Changed = len(node.Limits) != len(d.nodes[i].Limits)
	goes := response.Changed && len(node.Limits) == 0 && node.Weight == 100
	switch {
	case request.DryRun:
	case goes:
		d.nodes = append(d.nodes[:i], d.nodes[i+1:]...)
	default:
		d.nodes[i] = node
	}
	if !goes {
		response.Node = &node
	}
	return response
}

// refuse returns the error for a request that the daemon would refuse, and changes nothing.
func (d *Daemon) refuse(request api.SetRequest) *api.Error {
	if d.deny != nil {
		return d.deny
	}
	if request.Subject.Kind == api.KindPID {
		if _, err := os.Stat("/proc/" + request.Subject.ID); err != nil {
			return &api.Error{Code: api.CodeNotFound, Message: "there is no process " + request.Subject.ID, Hint: "ps -e"}
		}
	}
	return nil
}

// mayCut ends the connection of a call beyond the number of CutAfter.
func (d *Daemon) mayCut() {
	if d.cut && d.left == 0 {
		panic(http.ErrAbortHandler)
	}
	d.left--
}

func (d *Daemon) deleteLimits(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mayCut()
	subject, err := api.ParseSubject(r.URL.Query().Get("subject"))
	if err != nil {
		answer(w, http.StatusBadRequest, api.Error{Code: api.CodeBadRequest, Message: err.Error()})
		return
	}
	if d.deny != nil {
		answer(w, api.HTTPStatus(d.deny.Code), d.deny)
		return
	}
	i := d.find(subject)
	if i < 0 {
		answer(w, http.StatusNotFound, noLimit(subject))
		return
	}
	if dry, _ := strconv.ParseBool(r.URL.Query().Get("dry_run")); !dry {
		d.nodes = append(d.nodes[:i], d.nodes[i+1:]...)
	}
	answer(w, http.StatusOK, api.SetResponse{Version: api.Version, Changed: true})
}

func (d *Daemon) postDown(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deny != nil {
		answer(w, api.HTTPStatus(d.deny.Code), d.deny)
		return
	}
	d.nodes, d.down = nil, true
	answer(w, http.StatusOK, struct{}{})
}

// find returns the index of the subject's own node, -1 if it has none.
func (d *Daemon) find(s api.Subject) int {
	for i, n := range d.nodes {
		if n.Subject == s {
			return i
		}
	}
	return -1
}

// parent returns the index of the node that encloses the i-th, -1 if there is none.
func (d *Daemon) parent(i int) int {
	for j, n := range d.nodes {
		if id := d.nodes[i].Parent; id != 0 && n.ID == id {
			return j
		}
	}
	return -1
}

func apply(n *api.Node, request api.SetRequest) {
	w := request.Wish
	if w.Line != nil {
		if n.Line = w.Line; *w.Line == (api.Line{}) {
			n.Line = nil
		}
	}
	set := func(direction api.Direction, rate *uint64, enforced bool) {
		if rate == nil {
			return
		}
		var kept []api.Limit
		for _, l := range n.Limits {
			if l.Direction != direction {
				kept = append(kept, l)
			}
		}
		if *rate > 0 {
			kept = append(kept, api.Limit{Owner: api.OwnerAdmin, Direction: direction, BytesPerSec: *rate, BurstNS: 10e6, Enforced: enforced, LeftNS: request.ForNS})
		}
		n.Limits = kept
	}
	set(api.Up, w.UpBytesPerSec, true)
	set(api.Down, w.DownBytesPerSec, true)
	set(api.Total, w.TotalBytesPerSec, true)
	if w.MinBytesPerSec != nil {
		n.MinBytesPerSec = *w.MinBytesPerSec
	}
	if w.Weight != nil {
		n.Weight = *w.Weight
	}
	if w.Loopback != nil {
		n.Loopback = *w.Loopback
	}
	if w.InputMeter != nil {
		n.MeterOff = !*w.InputMeter
	}
}

func noLimit(s api.Subject) *api.Error {
	return &api.Error{Code: api.CodeNoLimit, Message: "no limit on " + s.String()}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
