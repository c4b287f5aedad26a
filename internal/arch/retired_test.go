package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired is a word that docs/GLOSSARY.md no longer uses for a thing, and the term that it uses. Left and leftInC count
// the identifiers that still have the word, in Go and in C: there may be fewer, and no more. A plural counts, too.
type retired struct {
	word, instead string
	left, leftInC int
}

// retiredWords are the words of identifiers that the glossary and its sources retired. Words with another meaning in
// most of their uses, such as end or line, are left out.
var retiredWords = []retired{
	{"alone", "single-instance check", 11, 1},
	{"beside", "coexist", 13, 0},
	{"book", "rule set", 6, 2},
	{"bucket", "clock", 4, 2},
	{"came", "ingress, or the name of what it is", 9, 7},
	{"catch", "adopt", 1, 0},
	{"cover", "scope of the egress hook", 9, 4},
	{"crowd", "burst of short connections", 0, 2},
	{"dissolve", "unset, or remove", 3, 0},
	{"expiry", "lapse", 0, 0},
	{"family", "group", 5, 2},
	{"floor", "guarantee", 2, 0},
	{"follow", "watch", 40, 5},
	{"former", "previous map layout", 24, 12},
	{"held", "deferred chunk", 22, 17},
	{"house", "group", 2, 0},
	{"keep", "run, for a loop", 27, 25},
	{"know", "track", 3, 0},
	{"lane", "class", 16, 9},
	{"let go", "unset", 1, 0},
	{"look", "sample", 72, 18},
	{"maximum", "ceiling", 0, 0},
	{"met", "per-peer limit", 13, 5},
	{"minimum", "guarantee", 0, 0},
	{"modest", "below its share", 0, 1},
	{"newborn", "new class", 0, 5},
	{"outsider", "the name of what it is", 0, 0},
	{"paid", "finish", 3, 3},
	{"place", "per-namespace queue", 27, 11},
	{"remote", "peer", 9, 4},
	{"room", "quota, or receive window", 15, 4},
	{"settle", "reconcile", 12, 3},
	{"slack", "burst", 0, 3},
	{"standing", "backlog", 4, 0},
	{"stock", "preallocated nodes", 0, 0},
	{"stranger", "the name of what it is", 2, 3},
	{"tell", "publish", 16, 0},
	{"told", "published", 8, 0},
	{"toward", "destination", 0, 0},
	{"turn", "departure time", 12, 5},
	{"unapply", "unset", 1, 0},
	{"wanted", "requested", 22, 3},
	{"who", "owner, or subject", 13, 3},
	{"whom", "peer", 2, 0},
	{"whose", "socket owner", 10, 4},
	{"wish", "limit", 15, 0},
	{"young", "class without history", 1, 3},
}

// words returns the words of an identifier in small letters, each with a space on both sides.
func words(identifier string) string {
	var b strings.Builder
	last := rune(0)
	for i, r := range identifier {
		isCapital := 'A' <= r && r <= 'Z'
		endsCapitals := isCapital && i+1 < len(identifier) && 'a' <= identifier[i+1] && identifier[i+1] <= 'z'
		if r == '_' || isCapital && ('a' <= last && last <= 'z' || '0' <= last && last <= '9' || endsCapitals) {
			b.WriteByte(' ')
		}
		if r != '_' {
			b.WriteRune(r)
		}
		last = r
	}
	return " " + strings.Join(strings.Fields(strings.ToLower(b.String())), " ") + " "
}

// has reports whether an identifier has the word, or its plural.
func (r retired) has(identifier string) bool {
	text := words(identifier)
	return strings.Contains(text, " "+r.word+" ") || strings.Contains(text, " "+r.word+"s ") || strings.Contains(text, " "+r.word+"es ")
}

// declared calls f with each identifier that a file declares.
func declared(file *ast.File, f func(string)) {
	idents := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				f(id.Name)
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.FuncDecl:
			f(x.Name.Name)
		case *ast.TypeSpec:
			f(x.Name.Name)
		case *ast.ValueSpec:
			for _, name := range x.Names {
				f(name.Name)
			}
		case *ast.Field:
			for _, name := range x.Names {
				f(name.Name)
			}
		case *ast.AssignStmt:
			if x.Tok == token.DEFINE {
				idents(x.Lhs...)
			}
		case *ast.RangeStmt:
			if x.Tok == token.DEFINE {
				idents(x.Key, x.Value)
			}
		}
		return true
	})
}

// goIdentifiers returns the identifiers that the product declares, each once for a folder: "internal/limit.Owners".
func goIdentifiers(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	productFiles(t, 0, func(folder string, _ *token.FileSet, file *ast.File) {
		declared(file, func(name string) { found[folder+"."+name] = true })
	})
	return found
}

var (
	cComment    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"[^"\n]*"`)
	cIdentifier = regexp.MustCompile(`\b[A-Za-z_]\w*`)
)

// cIdentifiers returns the identifiers of the kernel's programs, each once: "bpf.nn_charge".
func cIdentifiers(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := filepath.WalkDir(filepath.Join("..", "..", "bpf"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".h") && !strings.HasSuffix(path, ".c") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range cIdentifier.FindAllString(cComment.ReplaceAllString(string(text), " "), -1) {
			found["bpf."+name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// with returns those of the identifiers that have a retired word.
func (r retired) with(identifiers map[string]bool) (list []string) {
	for name := range identifiers {
		if r.has(name[strings.LastIndex(name, ".")+1:]) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// A retired word does not come back.
func TestRetiredWords(t *testing.T) {
	goNames, cNames := goIdentifiers(t), cIdentifiers(t)
	for _, r := range retiredWords {
		if list := r.with(goNames); len(list) > r.left {
			t.Errorf("%q is retired, say %s: %d identifiers have it, at most %d:\n%s", r.word, r.instead, len(list), r.left, strings.Join(list, "\n"))
		}
		if list := r.with(cNames); len(list) > r.leftInC {
			t.Errorf("%q is retired, say %s: %d identifiers of bpf have it, at most %d:\n%s", r.word, r.instead, len(list), r.leftInC, strings.Join(list, "\n"))
		}
	}
	if !slices.IsSortedFunc(retiredWords, func(a, b retired) int { return strings.Compare(a.word, b.word) }) {
		t.Error("the words are not in order")
	}
}

func TestWords(t *testing.T) {
	for identifier, want := range map[string]string{
		"letGo": " let go ", "HTTPServer": " http server ", "NodeID": " node id ", "nn_sk_lane": " nn sk lane ", "IPv6": " i pv6 ",
		"TCP_SNDRATE": " tcp sndrate ", "at2Places": " at2 places ",
	} {
		if got := words(identifier); got != want {
			t.Errorf("%s: %q", identifier, got)
		}
	}
	for identifier, is := range map[string]bool{"SocketWish": true, "wishes": true, "wishful": false} {
		if (retired{word: "wish"}).has(identifier) != is {
			t.Errorf("%s: %v", identifier, !is)
		}
	}
	if fmt.Sprint((retired{word: "let go"}).with(map[string]bool{"a.letGo": true, "a.letsGo": true, "let.Go": true})) != "[a.letGo]" {
		t.Error("phrases are not found")
	}
}
