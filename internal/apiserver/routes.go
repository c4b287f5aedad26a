package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// Route is one call of the API. The server and docs/reference/api.yaml follow from the table of routes.
type Route struct {
	Method, Path string
	Summary      string // what the call does, in one sentence
	Query        []Parameter
	// IsStream says that the answer is one JSON object a line, until the caller hangs up or the daemon leaves.
	IsStream bool
	operation
}

// Parameter is a parameter of a route's query.
type Parameter struct {
	Name       string
	Type       string // as in JSON Schema
	IsRequired bool
	Means      string
}

// operation is what a route does. The types of its body and its answer are those of the method that serves it.
type operation struct {
	Body, Answer reflect.Type // Body: nil = none
	serve        func(s server, by auth.Actor, r *http.Request) (any, error)
}

// give makes an operation that only answers.
func give[A any](f func(s server, ctx context.Context, by auth.Actor) (A, error)) operation {
	return ask(func(s server, by auth.Actor, r *http.Request) (A, error) { return f(s, r.Context(), by) })
}

// take makes an operation that has a body.
func take[B, A any](f func(s server, ctx context.Context, by auth.Actor, body B) (A, error)) operation {
	o := ask(func(s server, by auth.Actor, r *http.Request) (answer A, err error) {
		var body B
		if err := readBody(r, &body); err != nil {
			return answer, err
		}
		return f(s, r.Context(), by, body)
	})
	o.Body = reflect.TypeFor[B]()
	return o
}

// ask makes an operation that reads its parameters itself.
func ask[A any](f func(s server, by auth.Actor, r *http.Request) (A, error)) operation {
	return operation{
		Answer: reflect.TypeFor[A](),
		serve:  func(s server, by auth.Actor, r *http.Request) (any, error) { return f(s, by, r) },
	}
}

// Routes returns the table of routes.
func Routes() []Route {
	text := func(name, means string) Parameter { return Parameter{Name: name, Type: "string", Means: means} }
	number := func(name, means string) Parameter { return Parameter{Name: name, Type: "integer", Means: means} }
	required := func(p Parameter) Parameter {
		p.IsRequired = true
		return p
	}
	pid := required(number("pid", "The number of the process, from 1 on."))
	dryRun := Parameter{Name: "dry_run", Type: "boolean", Means: "Say what would change, and change nothing."}
	return []Route{
		{Method: "GET", Path: "/v1/status", Summary: "Describe the daemon.", operation: give(server.status)},
		{
			Method: "GET", Path: "/v1/nodes", Summary: "List the limits, with what is sent and received under each.",
			Query:     []Parameter{text("subject", "List only the limits that hold for this subject, such as pid:4711 or user:bob, the innermost first.")},
			operation: ask(server.nodes),
		},
		{Method: "PUT", Path: "/v1/limits", Summary: "Set, change or lift limits of a subject.", operation: take(server.set)},
		{
			Method: "DELETE", Path: "/v1/limits",
			Summary:   "Lift all limits of the caller on a subject. An administrator lifts those of all owners.",
			Query:     []Parameter{required(text("subject", "The subject, such as pid:4711 or user:bob.")), dryRun},
			operation: ask(server.remove),
		},
		{Method: "PUT", Path: "/v1/power", Summary: "Set, change or lift the CPU share of a process.", operation: take(server.SetPower)},
		{Method: "GET", Path: "/v1/power", Summary: "List the CPU shares.", operation: give(server.powers)},
		{Method: "PUT", Path: "/v1/adapt", Summary: "Let the sending rate to a host follow the path, or end that.", operation: take(server.SetAdapt)},
		{Method: "GET", Path: "/v1/adapt", Summary: "List the hosts whose path is followed.", operation: give(server.Adapted)},
		{Method: "PUT", Path: "/v1/system", Summary: "Change settings of the whole machine.", operation: take(server.SetSystem)},
		{Method: "GET", Path: "/v1/system", Summary: "Show the settings of the whole machine.", operation: give(server.system)},
		{Method: "GET", Path: "/v1/rules", Summary: "List the rules in force, and the mistakes in newer files.", operation: give(server.Rules)},
		{Method: "POST", Path: reloadPath, Summary: "Read the rule files again, now.", operation: give(server.ReloadRules)},
		{
			Method: "GET", Path: "/v1/rules/test", Summary: "Say which rules match a process, and why others do not.",
			Query: []Parameter{pid}, operation: ask(server.testRules),
		},
		{
			Method: "GET", Path: "/v1/why", Summary: "Measure which limits bind the connections of a process.",
			Query: []Parameter{
				pid,
				number("fd", "Measure this open file of the process alone."),
				text("over", fmt.Sprintf("How long to measure, such as 250ms: %v to %v, without it %v.", leastOver, mostOver, usualOver)),
			},
			operation: ask(server.why),
		},
		{
			Method: "GET", Path: EventsPath, Summary: "Send the events that concern the caller, as they happen.",
			IsStream: true, operation: operation{Answer: reflect.TypeFor[api.Event]()},
		},
		{Method: "POST", Path: "/v1/down", Summary: "Lift every limit. The daemon ends after its answer.", operation: give(server.down)},
	}
}

// handler returns the handler of a route. Parameters that the table does not have are refused.
func (r Route) handler(s server) http.HandlerFunc {
	if r.IsStream {
		return s.events
	}
	allowed := make([]string, 0, len(r.Query))
	for _, p := range r.Query {
		allowed = append(allowed, p.Name)
	}
	return s.with(func(by auth.Actor, request *http.Request) (any, error) {
		if err := onlyQuery(request, allowed...); err != nil {
			return nil, err
		}
		return r.serve(s, by, request)
	})
}
