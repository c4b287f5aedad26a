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
	"complexity of func internal/bpf.Object.FormerTrees":         {21, "to be divided"},
	"complexity of func internal/bpf.missing":                    {19, "to be divided"},
	"complexity of func internal/cli.App.adapt":                  {20, "a case for each flag or event"},
	"complexity of func internal/cli.App.eventText":              {27, "a case for each flag or event"},
	"complexity of func internal/cli.App.reserve":                {28, "a case for each flag or event"},
	"complexity of func internal/cli.App.reserveCPU":             {23, "a case for each flag or event"},
	"complexity of func internal/cli.App.up":                     {20, "a case for each flag or event"},
	"complexity of func internal/cpushare.Table.Set":             {25, "to be divided"},
	"complexity of func internal/cpushare.check":                 {29, "a case for each request that is refused"},
	"complexity of func internal/daemon.Daemon.takeOver":         {29, "until requests, plan and reconciler are packages of their own"},
	"complexity of func internal/daemon.Daemon.readSubordinates": {19, "until requests, plan and reconciler are packages of their own"},
	"complexity of func internal/daemon.Daemon.restore":          {21, "until requests, plan and reconciler are packages of their own"},
	"complexity of func internal/desired.Record.check":           {22, "a case for each fault"},
	"complexity of func internal/destination.Selector.add":       {19, "to be divided"},
	"complexity of func internal/enforce/shaping.shaper.look":    {22, "to be divided"},
	"complexity of func internal/identity.Subordinates":          {21, "to be divided"},
	"complexity of func internal/rules.destinationsOf":           {19, "to be divided"},
	"complexity of func internal/shell.split":                    {57, "the shells' grammar of words"},
	"fields of api.Adapted":                                      {22, "one object of the API"},
	"fields of api.Event":                                        {25, "one object of the API"},
	"fields of api.Node":                                         {27, "one object of the API"},
	"fields of internal/adapt.Law":                               {32, "the state of a control law"},
	"fields of internal/adapt.window":                            {22, "the state of a control law"},
	"fields of internal/daemon.Daemon":                           {40, "until requests, plan and reconciler are packages of their own"},
	"fields of internal/daemon.Options":                          {25, "until requests, plan and reconciler are packages of their own"},
	"fields of internal/enforce.NodeSpec":                        {22, "all that the kernel side takes of a node"},
	"fields of internal/enforce/pacing.Kernel":                   {34, "until its concerns have types of their own"},
	"fields of internal/kernelfeatures.Features":                 {70, "a field for each feature"},
	"lines of func internal/cli.App.adapt":                       {85, "a case for each flag or event"},
	"lines of func internal/cli.App.reserve":                     {85, "a case for each flag or event"},
	"lines of func internal/daemon.Daemon.takeOver":              {94, "until requests, plan and reconciler are packages of their own"},
	"lines of func internal/shell.split":                         {94, "the shells' grammar of words"},
	"lines of internal/cli":                                      {8890, "a file for each verb"},
	"lines of internal/daemon":                                   {7332, "until requests, plan and reconciler are packages of their own"},
	"lines of internal/enforce/shaping":                          {5554, "three kinds of queues, until the way of their packets is divided, too"},
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
