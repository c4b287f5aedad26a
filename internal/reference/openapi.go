package reference

import (
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/client"
	"github.com/netnice/netnice/internal/apiserver"
)

const apiAbout = `The HTTP API of netnice's daemon, on a unix socket. The command line uses it, too.

The daemon knows the caller by the credentials that the kernel keeps for the socket. Users may limit what is theirs;
netnice(7) has the table of rights and the quotas. Rates are in bytes of IP packets per second, headers included.
Durations are in nanoseconds. An empty list in an answer may be null. Answers may have further fields in later releases:
callers skip what they do not know. The daemon refuses fields and parameters that it does not know.

The schemas Probe, Report, RuleCheck and SetList are in no call: commands print them with --json.

  curl --unix-socket ` + client.DefaultSocket + ` http://netnice/v1/status`

// printed returns the types that commands print with --json, and that no call has.
func printed() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[api.Probe](), reflect.TypeFor[api.Report](), reflect.TypeFor[api.RuleCheck](), reflect.TypeFor[api.SetList](),
	}
}

// apiPage returns the API as OpenAPI 3.1.
func apiPage(root string) (string, error) {
	c, err := readComments(filepath.Join(root, "api"))
	if err != nil {
		return "", err
	}
	answers, bodies := append(printed(), reflect.TypeFor[api.Error]()), []reflect.Type{}
	for _, r := range apiserver.Routes() {
		answers = append(answers, r.Answer)
		if r.Body != nil {
			bodies = append(bodies, r.Body)
		}
	}
	doc := object{}.
		with("openapi", "3.1.0").
		with("info", object{}.
			with("title", "netnice").
			with("version", api.Version).
			with("description", apiAbout).
			with("license", object{}.with("name", "Apache 2.0").with("identifier", "Apache-2.0"))).
		with("servers", []object{object{}.
			with("url", "http://netnice").
			with("description", "The unix socket "+client.DefaultSocket+". The name of the host has no meaning.")}).
		with("paths", paths()).
		with("components", object{}.
			with("responses", object{}.with("Error", errorResponse(c))).
			with("schemas", newSchemas(c, bodies, answers).all()))
	return yamlText(doc)
}

// paths returns the operations of all routes, by their paths.
func paths() object {
	var all object
	for _, r := range apiserver.Routes() {
		at := slices.IndexFunc(all, func(e entry) bool { return e.key == r.Path })
		if at < 0 {
			at = len(all)
			all = all.with(r.Path, object{})
		}
		all[at].value = all[at].value.(object).with(strings.ToLower(r.Method), operation(r))
	}
	return all
}

// operation returns one route.
func operation(r apiserver.Route) object {
	words := strings.Split(strings.TrimPrefix(r.Path, "/v1/"), "/")
	o := object{}.
		with("operationId", strings.ToLower(r.Method)+strings.Join(capitals(words), "")).
		with("summary", r.Summary)
	var parameters []object
	for _, p := range r.Query {
		parameters = append(parameters, object{}.
			with("name", p.Name).
			with("in", "query").
			with("required", p.IsRequired).
			with("description", p.Means).
			with("schema", object{}.with("type", p.Type)))
	}
	if parameters != nil {
		o = o.with("parameters", parameters)
	}
	if r.Body != nil {
		o = o.with("requestBody", object{}.with("required", true).with("content", content("application/json", r.Body)))
	}
	kind, about := "application/json", "The answer."
	if r.IsStream {
		kind, about = "application/x-ndjson", "One JSON object a line, until the caller hangs up or the daemon ends."
	}
	return o.with("responses", object{}.
		with("200", object{}.with("description", about).with("content", content(kind, r.Answer))).
		with("default", object{}.with("$ref", "#/components/responses/Error")))
}

// capitals returns words that begin with capitals.
func capitals(words []string) (list []string) {
	for _, w := range words {
		list = append(list, strings.ToUpper(w[:1])+w[1:])
	}
	return list
}

// content returns a body of a kind, with a type of the package api.
func content(kind string, t reflect.Type) object {
	return object{}.with(kind, object{}.with("schema", object{}.with("$ref", "#/components/schemas/"+t.Name())))
}

// errorResponse returns the answer to a request that fails.
func errorResponse(c *comments) object {
	text := "The request failed. The HTTP status follows from the code:"
	for _, one := range c.constants {
		if strings.HasPrefix(one.Name, "Code") {
			text += "\n- " + strconv.Itoa(api.HTTPStatus(one.Value)) + ": " + one.Value
		}
	}
	return object{}.with("description", text).with("content", content("application/json", reflect.TypeFor[api.Error]()))
}
