package reference

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

// asJSON returns a value as the validator reads it.
func asJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return doc
}

// The document is OpenAPI 3.1, by the schema of the OpenAPI Initiative
// (https://spec.openapis.org/oas/3.1/schema/2022-10-07).
func TestAPIIsOpenAPI(t *testing.T) {
	text, err := os.ReadFile("testdata/openapi-3.1.schema.json")
	require.NoError(t, err)
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	const name = "https://spec.openapis.org/oas/3.1/schema/2022-10-07"
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(name, meta))
	schema, err := c.Compile(name)
	require.NoError(t, err)
	doc := document(t)
	require.NoError(t, schema.Validate(asJSON(t, doc)))

	for _, key := range []string{"openapi", "info"} {
		without := document(t)
		delete(without, key)
		require.Error(t, schema.Validate(asJSON(t, without)), "without %s", key)
	}
	at(t, doc, "paths").(map[string]any)["v1/x"] = map[string]any{}
	require.Error(t, schema.Validate(asJSON(t, doc)), "a path without a slash")
}

// The JSON of the Go types is valid by the schemas of the document: with all fields set, and with none.
func TestSchemasHoldForValues(t *testing.T) {
	const name = "netnice:api"
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource(name, asJSON(t, document(t))))
	compile := func(of string) *jsonschema.Schema {
		schema, err := c.Compile(name + "#/components/schemas/" + of)
		require.NoError(t, err, of)
		return schema
	}
	for of := range at(t, document(t), "components", "schemas").(map[string]any) {
		compile(of)
	}
	for _, of := range typesOfRoutes() {
		schema := compile(of.Name())
		require.NoError(t, schema.Validate(asJSON(t, full(of).Interface())), of.Name())
		require.NoError(t, schema.Validate(asJSON(t, reflect.New(of).Interface())), of.Name())
	}
	request := asJSON(t, api.SetRequest{}).(map[string]any)
	request["more"] = 1
	require.Error(t, compile("SetRequest").Validate(request), "a field that the daemon refuses")
	answer := asJSON(t, api.Status{}).(map[string]any)
	answer["more"] = 1
	require.NoError(t, compile("Status").Validate(answer), "a field of a later release")
	answer["pid"] = "7"
	require.Error(t, compile("Status").Validate(answer), "a text for a number")
}

// Every reference in the document leads to something in it.
func TestReferences(t *testing.T) {
	doc := document(t)
	found := 0
	var walk func(any)
	walk = func(node any) {
		switch v := node.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				found++
				require.True(t, strings.HasPrefix(ref, "#/"), ref)
				at(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			for _, one := range v {
				walk(one)
			}
		case []any:
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(doc)
	require.Greater(t, found, 30)
}
