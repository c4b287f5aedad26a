package reference

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// schemas are the schemas of the types that an API's routes have.
type schemas struct {
	comments *comments
	names    *names
	types    []reflect.Type // in the order in which they were found
	inAnswer map[reflect.Type]bool
}

// newSchemas finds the types of bodies and answers.
func newSchemas(c *comments, bodies, answers []reflect.Type) *schemas {
	s := &schemas{comments: c, inAnswer: make(map[reflect.Type]bool)}
	for _, t := range answers {
		s.find(t)
	}
	for _, t := range s.types {
		s.inAnswer[t] = true
	}
	for _, t := range bodies {
		s.find(t)
	}
	slices.SortFunc(s.types, func(a, b reflect.Type) int { return strings.Compare(a.Name(), b.Name()) })
	s.names = newNames(s.types, c)
	return s
}

// find adds a type and those of its fields.
func (s *schemas) find(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		s.find(t.Elem())
		return
	}
	if !isOurs(t) || slices.Contains(s.types, t) {
		return
	}
	s.types = append(s.types, t)
	if t.Kind() == reflect.Struct {
		for _, f := range jsonFields(t) {
			s.find(f.Type)
		}
	}
}

// isOurs reports whether a type has a schema of its own.
func isOurs(t reflect.Type) bool { return strings.HasSuffix(t.PkgPath(), "/netnice/api") }

// all returns the schemas of all types.
func (s *schemas) all() object {
	var all object
	for _, t := range s.types {
		schema := object{}.with("description", s.describeType(t))
		if t.Kind() == reflect.Struct {
			schema = append(schema, s.ofStruct(t)...)
		} else {
			schema = append(schema, s.ofValues(t)...)
		}
		all = all.with(t.Name(), schema)
	}
	return all
}

// describeType returns the comment on a type, and those on its constants.
func (s *schemas) describeType(t reflect.Type) string {
	text := s.names.text(t.Name(), s.comments.types[t.Name()])
	for _, one := range s.comments.ofType(t.Name()) {
		if one.Comment != "" {
			text += "\n- " + code(one.Value) + ": " + s.names.text(t.Name(), strings.TrimPrefix(one.Comment, one.Name+": "))
		}
	}
	return text
}

// ofStruct returns the schema of a struct. A body that a caller sends has no other fields, because the daemon refuses
// them; later versions may add fields to answers.
func (s *schemas) ofStruct(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range jsonFields(t) {
		schema := append(s.of(f.Type, !f.optional), entry{"description", s.describe(f)})
		properties = properties.with(f.json, schema)
		if !f.optional {
			required = append(required, f.json)
		}
	}
	schema := object{}.with("type", "object")
	if len(required) > 0 {
		schema = schema.with("required", required)
	}
	schema = schema.with("properties", properties)
	if !s.inAnswer[t] {
		schema = schema.with("additionalProperties", false)
	}
	return schema
}

// describe returns the comment on a field.
func (s *schemas) describe(f jsonField) string {
	return s.names.text(f.owner, s.comments.fields[f.owner][f.Name])
}

// ofValues returns the schema of a type whose values are constants. A type whose comment says that the set stays open
// has examples.
func (s *schemas) ofValues(t reflect.Type) object {
	var values []string
	for _, one := range s.comments.ofType(t.Name()) {
		values = append(values, one.Value)
	}
	key := "enum"
	if strings.Contains(s.comments.types[t.Name()], "stays open") {
		key = "examples"
	}
	return object{}.with("type", "string").with(key, values)
}

// of returns the schema of a field's type. A list or map that is always there may be null in its place.
func (s *schemas) of(t reflect.Type, isThere bool) object {
	orNull := func(kind string) object {
		if isThere {
			return object{}.with("type", []string{kind, "null"})
		}
		return object{}.with("type", kind)
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem(), false)
	case isOurs(t):
		return object{}.with("$ref", "#/components/schemas/"+t.Name())
	case t == reflect.TypeFor[time.Time]():
		return object{}.with("type", "string").with("format", "date-time")
	case t.Kind() == reflect.Slice:
		return orNull("array").with("items", s.of(t.Elem(), false))
	case t.Kind() == reflect.Map:
		return orNull("object").with("additionalProperties", s.of(t.Elem(), false))
	}
	return ofBasic(t)
}

// ofBasic returns the schema of a number, a text, or true and false.
func ofBasic(t reflect.Type) object {
	switch t.Kind() {
	case reflect.String:
		return object{}.with("type", "string")
	case reflect.Bool:
		return object{}.with("type", "boolean")
	case reflect.Float64:
		return object{}.with("type", "number").with("format", "double")
	case reflect.Int, reflect.Int64:
		return object{}.with("type", "integer").with("format", "int64")
	case reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{}.with("type", "integer").with("format", t.Kind().String()).with("minimum", 0)
	}
	panic(fmt.Sprintf("no schema for %v", t)) // a type of a new kind in the package api
}
