package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Bounds for the code of the product. Code beyond one of them is an exception, which may not grow.
const (
	mostPackageLines  = 4000
	mostStructFields  = 20
	mostFunctionLines = 80
	mostComplexity    = 18 // paths through a function that are independent of each other
)

// exception is code beyond a bound: its size, and why it is let be.
type exception struct {
	size int
	why  string
}

// exceptions are named by what was measured and where: "lines of internal/cli".
var exceptions = map[string]exception{
	"fields of api.Adapted":                      {22, "one object of the API"},
	"fields of api.Event":                        {25, "one object of the API, for all types of events"},
	"fields of api.Node":                         {27, "one object of the API"},
	"fields of internal/adapt.Law":               {32, "the state of a control law, which one loop reads and writes"},
	"fields of internal/adapt.window":            {22, "the state of a control law, which one loop reads and writes"},
	"fields of internal/daemon.Options":          {25, "all that a daemon can be told at its start; each has a default"},
	"fields of internal/enforce.NodeSpec":        {22, "all that the kernel side takes of a node"},
	"fields of internal/kernelfeatures.Features": {70, "a field for each feature"},
	"lines of internal/cli":                      {9026, "a file for each verb"},
	"lines of internal/daemon":                   {6572, "nodes, their transactions, and what each source needs of them; sources leave it one by one"},
	"lines of internal/enforce/shaping":          {5575, "three kinds of queues, whose packets take one way"},
}

// sizes measures the code of the product, tests and generated files apart.
func sizes(t *testing.T) map[string]int {
	t.Helper()
	found := make(map[string]int)
	productFiles(t, 0, func(folder string, files *token.FileSet, file *ast.File) { measure(found, files, file, folder) })
	return found
}

// measure adds what one file has.
func measure(found map[string]int, files *token.FileSet, file *ast.File, folder string) {
	line := func(p token.Pos) int { return files.Position(p).Line }
	found["lines of "+folder] += line(file.FileEnd)
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := folder + "." + d.Name.Name
			if d.Recv != nil {
				name = folder + "." + receiver(d.Recv.List[0].Type) + "." + d.Name.Name
			}
			// Files for several systems, and init, share names.
			found["lines of func "+name] = max(found["lines of func "+name], line(d.End())-line(d.Pos())+1)
			found["complexity of func "+name] = max(found["complexity of func "+name], complexity(d))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					if of, ok := s.Type.(*ast.StructType); ok {
						found["fields of "+folder+"."+s.Name.Name] = of.Fields.NumFields()
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// complexity is McCabe's: one, and one for each branch.
func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// bound returns the bound for a measured size.
func bound(what string) int {
	switch {
	case strings.HasPrefix(what, "lines of func "):
		return mostFunctionLines
	case strings.HasPrefix(what, "complexity of "):
		return mostComplexity
	case strings.HasPrefix(what, "fields of "):
		return mostStructFields
	}
	return mostPackageLines
}

func TestSizes(t *testing.T) {
	found := sizes(t)
	for what, size := range found {
		of, isException := exceptions[what]
		switch most := bound(what); {
		case !isException && size > most:
			t.Errorf("%s: %d, at most %d", what, size, most)
		case isException && size <= most:
			t.Errorf("%s: %d, within the bound: it is no exception any more", what, size)
		case isException && size > of.size:
			t.Errorf("%s: %d, it was %d and may not grow", what, size, of.size)
		}
	}
	for what, of := range exceptions {
		if _, ok := found[what]; !ok {
			t.Errorf("%s: there is no such code", what)
		}
		if of.why == "" {
			t.Errorf("%s: say why it is let be", what)
		}
	}
}

func TestComplexity(t *testing.T) {
	const text = `package p
func f(a, b bool, c chan int) {
	if a && b || !a {
		for range 3 {
		}
	}
	switch {
	case a:
	case b:
	default:
	}
	select {
	case <-c:
	default:
	}
}
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	measure(found, files, file, "p")
	if found["complexity of func p.f"] != 8 || found["lines of func p.f"] != 15 {
		t.Errorf("measured %v", found)
	}
}
