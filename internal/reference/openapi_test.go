package reference

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/apiserver"
)

// document returns the API as it is in docs/reference.
func document(t *testing.T) map[string]any {
	t.Helper()
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(page(t, "api.yaml")), &doc))
	return doc
}

// at follows keys into a document.
func at(t *testing.T, doc any, keys ...string) any {
	t.Helper()
	for _, key := range keys {
		next, ok := doc.(map[string]any)[key]
		require.True(t, ok, "no %s in %v", key, keys)
		doc = next
	}
	return doc
}

func TestAPIHasEveryRoute(t *testing.T) {
	paths := at(t, document(t), "paths").(map[string]any)
	documented := 0
	for _, operations := range paths {
		documented += len(operations.(map[string]any))
	}
	require.Len(t, apiserver.Routes(), documented)
	for _, r := range apiserver.Routes() {
		operation := at(t, paths, r.Path, strings.ToLower(r.Method))
		require.Equal(t, r.Summary, at(t, operation, "summary"))
		require.True(t, strings.HasSuffix(r.Summary, "."), r.Summary)
		kind := "application/json"
		if r.IsStream {
			kind = "application/x-ndjson"
		}
		require.Equal(t, "#/components/schemas/"+r.Answer.Name(), at(t, operation, "responses", "200", "content", kind, "schema", "$ref"))
		if r.Body != nil {
			require.Equal(t, "#/components/schemas/"+r.Body.Name(), at(t, operation, "requestBody", "content", "application/json", "schema", "$ref"))
		}
		var names []string
		if len(r.Query) > 0 {
			for _, p := range at(t, operation, "parameters").([]any) {
				names = append(names, at(t, p, "name").(string))
			}
		}
		require.Len(t, r.Query, len(names))
		for _, p := range r.Query {
			require.Contains(t, names, p.Name)
		}
	}
}

// valueOf has a value of each type whose values are all known.
var valueOf = map[reflect.Type]string{
	reflect.TypeFor[api.Direction](): string(api.Up), reflect.TypeFor[api.Verdict](): string(api.BoundByLimit),
}

// full returns a value of a type in which every field is set, so that its JSON has every key.
func full(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		v.Set(full(t.Elem()).Addr())
	case reflect.Slice:
		v.Set(reflect.Append(v, full(t.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(full(t.Key()), full(t.Elem()))
	case reflect.String:
		v.SetString(cmp.Or(valueOf[t], "x"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
			return v
		}
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				v.Field(i).Set(full(f.Type))
			}
		}
	}
	return v
}

// typesOfRoutes returns the types of the bodies and answers, errors and what commands print included.
func typesOfRoutes() []reflect.Type {
	list := append(printed(), reflect.TypeFor[api.Error]())
	for _, r := range apiserver.Routes() {
		list = append(list, r.Answer)
		if r.Body != nil {
			list = append(list, r.Body)
		}
	}
	return list
}

// Every key that a body or an answer may have is in the document, with its type and a description.
func TestAPIHasEveryField(t *testing.T) {
	schemas := at(t, document(t), "components", "schemas").(map[string]any)
	checked := make(map[string]bool)
	for _, of := range typesOfRoutes() {
		text, err := json.Marshal(full(of).Interface())
		require.NoError(t, err)
		var value any
		require.NoError(t, json.Unmarshal(text, &value))
		checkValue(t, schemas, map[string]any{"$ref": "#/components/schemas/" + of.Name()}, value, of.Name(), checked)
	}
	for name := range schemas {
		require.True(t, checked[name], "%s is in no body and no answer", name)
	}
	c, err := readComments(filepath.Join(root, "api"))
	require.NoError(t, err)
	embedded, seen := make(map[string]bool), make(map[reflect.Type]bool)
	for _, of := range typesOfRoutes() {
		embeddedIn(of, embedded, seen)
	}
	for name := range c.fields {
		require.True(t, checked[name] || embedded[name], "%s has no schema: a route or printed names the types of the API", name)
	}
}

// embeddedIn adds the names of the types whose fields are fields of other types, in of and the types of its fields.
func embeddedIn(of reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || seen[of] {
		return
	}
	seen[of] = true
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			names[f.Type.Name()] = true
		}
		embeddedIn(f.Type, names, seen)
	}
}

// checkValue compares a value, in which every field is set, with its schema.
func checkValue(t *testing.T, schemas map[string]any, schema map[string]any, value any, where string, checked map[string]bool) {
	t.Helper()
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		checked[name] = true
		checkValue(t, schemas, at(t, schemas, name).(map[string]any), value, where, checked)
		return
	}
	kind := schema["type"]
	if kinds, ok := kind.([]any); ok {
		require.Equal(t, "null", kinds[1], where)
		kind = kinds[0]
	}
	switch v := value.(type) {
	case map[string]any:
		require.Equal(t, "object", kind, where)
		if further, ok := schema["additionalProperties"].(map[string]any); ok {
			for _, one := range v {
				checkValue(t, schemas, further, one, where, checked)
			}
			return
		}
		properties := at(t, schema, "properties").(map[string]any)
		require.Len(t, properties, len(v), where)
		for key, one := range v {
			property := at(t, properties, key).(map[string]any)
			require.NotEmpty(t, property["description"], "%s.%s has no comment", where, key)
			checkValue(t, schemas, property, one, where+"."+key, checked)
		}
	case []any:
		require.Equal(t, "array", kind, where)
		checkValue(t, schemas, at(t, schema, "items").(map[string]any), v[0], where, checked)
	case string:
		require.Equal(t, "string", kind, where)
	case bool:
		require.Equal(t, "boolean", kind, where)
	case float64:
		want := "integer"
		if v != 1 {
			want = "number"
		}
		require.Equal(t, want, kind, where)
	default:
		t.Errorf("%s is %v", where, v)
	}
}

// The description of a field is the comment on it, but for the names of fields and values.
func TestDescriptionsAreComments(t *testing.T) {
	schemas := at(t, document(t), "components", "schemas").(map[string]any)
	files, err := filepath.Glob(filepath.Join(root, "api", "*.go"))
	require.NoError(t, err)
	ofType := regexp.MustCompile("` of [A-Z]\\w+") // Type.Field is translated to it
	plain := func(text string) string {            // words that begin with a small letter: names are translated
		var words []string
		text = ofType.ReplaceAllString(text, "`")
		for _, word := range strings.Fields(text) {
			if strings.Contains(word, "`") {
				continue
			}
			if word = strings.Trim(word, ".,;:()"); word != "" && word[0] >= 'a' && word[0] <= 'z' && word != "nil" && word != "missing" {
				words = append(words, word)
			}
		}
		return strings.Join(words, " ")
	}
	compared := 0
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || schemas[spec.Name.Name] == nil {
				return true
			}
			of, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range of.Fields.List {
				if len(f.Names) == 0 || f.Doc.Text()+f.Comment.Text() == "" {
					continue
				}
				tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
				key, _, _ := strings.Cut(tag, ",")
				if key == "-" {
					continue
				}
				description := at(t, schemas, spec.Name.Name, "properties", key, "description").(string)
				// The first word is a capital in the description.
				want := plain(f.Doc.Text() + " " + f.Comment.Text())
				require.Contains(t, want, plain(description), "%s.%s", spec.Name.Name, key)
				require.GreaterOrEqual(t, len(strings.Fields(plain(description))), len(strings.Fields(want))-1-strings.Count(description, "`")/2, "%s.%s", spec.Name.Name, key)
				compared++
			}
			return true
		})
	}
	require.Greater(t, compared, 200)
}

func TestNamesOfJSON(t *testing.T) {
	c, err := readComments(filepath.Join(root, "api"))
	require.NoError(t, err)
	n := newNames([]reflect.Type{reflect.TypeFor[api.AdaptRequest](), reflect.TypeFor[api.Limit]()}, c)
	require.Equal(t, "`tcp` says that TCP toward the host is paced, too.", n.text("AdaptRequest", "TCP says that TCP toward the host is paced, too."))
	require.Equal(t, "`\"admin\"`, or the name of the user who set it; missing if none. `bytes_per_sec` of Limit", strings.TrimSuffix(n.text("Limit", "OwnerAdmin, or the name of the user who set it; nil if none. Limit.BytesPerSec"), "."))
}
