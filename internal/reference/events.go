package reference

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/netnice/netnice/api"
)

// eventsPage returns the page of events, from the comments on their types.
func eventsPage(root string) (string, error) {
	c, err := readComments(filepath.Join(root, "api"))
	if err != nil {
		return "", err
	}
	t := reflect.TypeFor[api.Event]()
	n := newNames([]reflect.Type{t}, c)
	var kinds, fields [][]string
	for _, one := range c.ofType("EventType") {
		about := strings.TrimPrefix(one.Comment, one.Name)
		about = strings.TrimPrefix(strings.TrimPrefix(about, ":"), " is")
		kinds = append(kinds, []string{code(one.Value), n.text(t.Name(), strings.TrimSpace(about)), strings.Join(fieldsOfEvent(t, one.Comment), ", ")})
	}
	for _, f := range jsonFields(t) {
		fields = append(fields, []string{code(f.json), n.text(t.Name(), c.fields[t.Name()][f.Name])})
	}
	return "# Events\n\n" +
		"`netnice monitor` prints events, with `--json` one JSON object a line.\n" +
		"`GET /v1/events` of the [API](api.yaml) sends the same objects.\n" +
		"Root receives all events. Others receive those of their own processes and user, of the host, and of the daemon.\n\n" +
		"## Types\n\nEach event has `version`, `type` and `time`. Readers skip types that they do not know.\n\n" +
		table([]string{"type", "means", "further fields"}, kinds) +
		"\n## Fields\n\nA field that has no meaning for an event is missing. [api.yaml](api.yaml) has the types of the fields.\n\n" +
		table([]string{"field", "is"}, fields), nil
}

// fieldsOfEvent returns the JSON names of those fields that a comment names.
func fieldsOfEvent(t reflect.Type, comment string) (list []string) {
	for _, f := range jsonFields(t) {
		if regexp.MustCompile(`\b` + f.Name + `\b`).MatchString(comment) {
			list = append(list, code(f.json))
		}
	}
	return list
}
