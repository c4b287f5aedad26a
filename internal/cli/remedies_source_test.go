package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// isRemedyName reports whether a field, a variable, an argument, a result or a function of that name is a remedy.
func isRemedyName(name string) bool {
	name = strings.ToLower(name)
	return name == "remedy" || name == "example" || strings.HasSuffix(name, "hint")
}

// remedyPlaces returns the positions of remedies among arguments or results.
func remedyPlaces(list *ast.FieldList) []int {
	var places []int
	at := 0
	for _, field := range list.List {
		for _, id := range field.Names {
			if isRemedyName(id.Name) {
				places = append(places, at)
			}
			at++
		}
	}
	return places
}

// remedyTakers returns the positions of remedies among the arguments of functions, by the names of the functions.
func remedyTakers(sources ...source) map[string][]int {
	takers := map[string][]int{}
	add := func(id *ast.Ident, f *ast.FuncType) {
		takers[id.Name] = append(takers[id.Name], remedyPlaces(f.Params)...)
	}
	for _, s := range sources {
		for _, file := range s.files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					add(n.Name, n.Type)
				case *ast.Field: // a method of an interface, or a function that is an argument
					if f, ok := n.Type.(*ast.FuncType); ok {
						for _, id := range n.Names {
							add(id, f)
						}
					}
				}
				return true
			})
		}
	}
	return takers
}

// source is the text of one package's Go files.
type source struct {
	folder string // the last part of its path
	files  map[string]*ast.File
	consts map[string][]string // the texts of constants in all functions, by the constant's name
}

func readSource(t *testing.T, dir string) source {
	t.Helper()
	s := source{folder: filepath.Base(dir), files: map[string]*ast.File{}, consts: map[string][]string{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		s.files[name] = file
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, id := range spec.Names {
				if text := s.text(spec.Values[i]); strings.Contains(text, "netnice ") {
					s.consts[id.Name] = append(s.consts[id.Name], text)
				}
			}
			return true
		})
	}
	return s
}

// checkSource checks the remedies of a package, and returns how many commands they name.
func checkSource(t *testing.T, s source, takers map[string][]int) (found int) {
	t.Helper()
	takers = maps.Clone(takers)
	for name, places := range remedyTakers(s) {
		if len(places) > 0 {
			takers[name] = places // these replace the positions of another package's function of that name
		}
	}
	for name, file := range s.files {
		remedy := func(e ast.Expr) {
			if id, ok := e.(*ast.Ident); ok {
				for _, text := range s.consts[id.Name] {
					found += checkRemedy(t, name, text, true)
				}
				return
			}
			found += checkRemedy(t, name, s.text(e), true)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, e := range remediesAt(n, takers) {
				remedy(e)
			}
			if n, ok := n.(*ast.BasicLit); ok {
				text := s.text(n)
				if strings.HasSuffix(text, " ") {
					text += blank // the text goes on with other values
				}
				found += checkRemedy(t, name, text, false)
			}
			return true
		})
	}
	return found
}

// remediesAt returns the expressions that are remedies by their position in a node of the source.
func remediesAt(n ast.Node, takers map[string][]int) (list []ast.Expr) {
	named := func(to ast.Expr, value ast.Expr) {
		if isRemedyName(nameOf(to)) {
			list = append(list, value)
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		named(n.Key, n.Value)
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if len(n.Lhs) == len(n.Rhs) {
				named(to, n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i, value := range n.Values {
			named(n.Names[min(i, len(n.Names)-1)], value)
		}
	case *ast.CallExpr:
		for _, at := range takers[nameOf(n.Fun)] {
			if at < len(n.Args) {
				list = append(list, n.Args[at])
			}
		}
	case *ast.FuncDecl:
		list = returnedRemedies(n)
	}
	return list
}

// returnedRemedies returns the remedies among the results of a function, by its own name or by the names of the
// results.
func returnedRemedies(f *ast.FuncDecl) (list []ast.Expr) {
	if f.Type.Results == nil || f.Body == nil {
		return nil
	}
	places := remedyPlaces(f.Type.Results)
	if isRemedyName(f.Name.Name) {
		places = append(places, 0)
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // the return statements of an inner function are not those of this function
		case *ast.ReturnStmt:
			for _, at := range places {
				if at < len(n.Results) {
					list = append(list, n.Results[at])
				}
			}
		}
		return true
	})
	return list
}

// nameOf returns the name by which a function is called.
func nameOf(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// text returns the text of an expression, with blanks for the parts that are known only at run time.
func (s source) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return strings.ReplaceAll(aVerb.ReplaceAllString(strings.ReplaceAll(text, "%%", "\x00"), blank), "\x00", "%")
		}
	case *ast.ParenExpr:
		return s.text(e.X)
	case *ast.BinaryExpr:
		return s.text(e.X) + s.text(e.Y)
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Sprintf" && len(e.Args) > 0 {
			return s.text(e.Args[0])
		}
	}
	return blank
}
