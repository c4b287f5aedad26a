package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// comments are the comments of a Go package, which the compiler leaves out.
type comments struct {
	types     map[string]string            // by the type's name
	fields    map[string]map[string]string // by the names of the type and the field
	constants []constant                   // in the order of the files
}

// constant is a constant with a literal value.
type constant struct {
	Name, Type, Value, Comment string
}

// readComments reads the comments of the package in a folder, tests apart.
func readComments(folder string) (*comments, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	c := &comments{types: make(map[string]string), fields: make(map[string]map[string]string)}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				c.declaration(d)
			}
		}
	}
	return c, nil
}

func (c *comments) declaration(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			c.types[s.Name.Name] = commentText(d.Doc, s.Doc)
			if of, ok := s.Type.(*ast.StructType); ok {
				c.fields[s.Name.Name] = fieldComments(of)
			}
		case *ast.ValueSpec:
			if d.Tok == token.CONST {
				c.constant(s)
			}
		}
	}
}

func (c *comments) constant(s *ast.ValueSpec) {
	if len(s.Names) != 1 || len(s.Values) != 1 {
		return
	}
	literal, ok := s.Values[0].(*ast.BasicLit)
	if !ok {
		return
	}
	value := literal.Value
	if literal.Kind == token.STRING {
		value, _ = strconv.Unquote(literal.Value) // the parser has read it
	}
	kind := ""
	if name, ok := s.Type.(*ast.Ident); ok {
		kind = name.Name
	}
	c.constants = append(c.constants, constant{s.Names[0].Name, kind, value, commentText(s.Doc, s.Comment)})
}

// fieldComments returns the comment of each field. A field without one has the last comment before it that names it.
func fieldComments(of *ast.StructType) map[string]string {
	found := make(map[string]string)
	var before []string
	for _, f := range of.Fields.List {
		text := commentText(f.Doc, f.Comment)
		for _, name := range f.Names {
			own := text
			for i := len(before) - 1; own == "" && i >= 0; i-- {
				if regexp.MustCompile(`\b` + name.Name + `\b`).MatchString(before[i]) {
					own = before[i]
				}
			}
			found[name.Name] = own
		}
		before = append(before, text)
	}
	return found
}

// commentText joins comments to one line.
func commentText(groups ...*ast.CommentGroup) string {
	var words []string
	for _, g := range groups {
		words = append(words, strings.Fields(g.Text())...)
	}
	return strings.Join(words, " ")
}

// ofType returns the constants of a type.
func (c *comments) ofType(name string) (list []constant) {
	for _, one := range c.constants {
		if one.Type == name {
			list = append(list, one)
		}
	}
	return list
}
