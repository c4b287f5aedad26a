package reference

import (
	"reflect"
	"regexp"
	"strings"
)

var (
	aName      = regexp.MustCompile(`\b[A-Za-z]+(?:\.[A-Z][A-Za-z]*)?\b`)
	isAcronym  = regexp.MustCompile(`^[A-Z]+$`)
	isCompound = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]`)
)

// names translates comments of the package api to the names that its JSON has.
type names struct {
	ofFields map[string]map[string]string // the JSON names of a type's fields
	values   map[string]string            // of constants
}

// newNames returns the names of types and of the constants in their comments.
func newNames(types []reflect.Type, c *comments) *names {
	n := &names{ofFields: make(map[string]map[string]string), values: make(map[string]string)}
	for _, t := range types {
		if t.Kind() != reflect.Struct {
			continue
		}
		of := make(map[string]string)
		for _, f := range jsonFields(t) {
			of[f.Name] = f.json
		}
		n.ofFields[t.Name()] = of
	}
	for _, one := range c.constants {
		n.values[one.Name] = one.Value
	}
	return n
}

// text returns a comment on a type, or on a field of it, as a sentence with the names of JSON.
func (n *names) text(of, comment string) string {
	first := true
	comment = aName.ReplaceAllStringFunc(comment, func(word string) string {
		isFirst := first
		first = false
		if owner, field, is := strings.Cut(word, "."); is {
			if name := n.ofFields[owner][field]; name != "" {
				return code(name) + " of " + owner
			}
			return word
		}
		switch name := n.ofFields[of][word]; {
		case word == "nil":
			return "missing"
		case name != "" && word != of && (isFirst || !isAcronym.MatchString(word)) && word[0] <= 'Z':
			return code(name)
		case isCompound.MatchString(word) && n.values[word] != "":
			return code(`"` + n.values[word] + `"`)
		}
		return word
	})
	return sentence(strings.ReplaceAll(comment, ". missing", ". Missing"))
}

// jsonField is a field of a struct as JSON has it.
type jsonField struct {
	reflect.StructField
	json     string
	owner    string // the type in which the field is declared
	optional bool   // the field may be missing
}

// jsonFields returns the fields of a struct, those of embedded structs included.
func jsonFields(t reflect.Type) (list []jsonField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			list = append(list, jsonFields(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		list = append(list, jsonField{f, name, t.Name(), strings.HasPrefix(options, "omit")})
	}
	return list
}
