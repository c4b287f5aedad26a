package arch

import (
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netnice/netnice/internal/testutil"
)

// codeChecks are the checks of the documents' blocks of code, by the word behind the fence. A check returns what is
// wrong. Each asks the language itself; none runs the code.
var codeChecks = map[string]func(b testutil.Block) error{
	"sh":      func(b testutil.Block) error { return shell(b.Text) },
	"console": checkConsole,
	"go":      checkGo,
	"python": func(b testutil.Block) error {
		return accepts(b.Text, "python3", "-I", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	},
	"c":       checkC,
	"rust":    checkRust,
	"js":      func(b testutil.Block) error { return accepts(b.Text, "node", "--check", "-") },
	"toml":    func(testutil.Block) error { return nil }, // internal/cli TestReadmeRulesAndOptions
	"mermaid": func(testutil.Block) error { return nil }, // drawn from the code and from steps
}

// accepts gives a text to a program, and returns what that says if it fails. A program that is not installed accepts all.
func accepts(text, program string, args ...string) error {
	if path, _ := exec.LookPath(program); path == "" {
		return nil
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

func shell(text string) error {
	return errors.Join(accepts(text, "sh", "-n"), accepts(text, "bash", "-n"))
}

// checkConsole reads the commands of a console block, without what they print.
func checkConsole(b testutil.Block) error {
	var all strings.Builder
	for _, c := range testutil.Commands(b) {
		all.WriteString(c.Text + "\n")
	}
	return shell(all.String())
}

func checkGo(b testutil.Block) error {
	text, err := format.Source([]byte(b.Text))
	if err == nil && string(text) != b.Text {
		err = fmt.Errorf("gofmt makes of it:\n%s", text)
	}
	return err
}

// checkC compiles the lines of a block as those of a function that has a socket.
func checkC(b testutil.Block) error {
	include, err := filepath.Abs("../../include")
	if err != nil {
		return err
	}
	var head, body strings.Builder
	for line := range strings.Lines(b.Text) {
		if strings.HasPrefix(line, "#") {
			head.WriteString(line)
		} else {
			body.WriteString(line)
		}
	}
	text := "#include <stdint.h>\n#include <netinet/in.h>\n#include <sys/socket.h>\n#include \"netnice.h\"\n" + head.String() + "void block(int fd) {\n" + body.String() + "}\n"
	return accepts(text, "cc", "-fsyntax-only", "-Wall", "-Wno-unused", "-Werror", "-I", include, "-x", "c", "-")
}

// checkRust has the compiler parse a block as a function that is left out before names are looked up. The compiler needs a
// folder of its own: it replaces the file that it writes, whatever that is.
func checkRust(b testutil.Block) error {
	dir, err := os.MkdirTemp("", "netnice-block-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return accepts("#[cfg(any())]\nfn block() {\n"+b.Text+"}\n", "rustc", "--crate-type", "lib", "--crate-name", "block", "--emit", "metadata", "--out-dir", dir, "-")
}

// Each block of code in a document is right in its language, and has a language that this test knows.
func TestCodeBlocks(t *testing.T) {
	root := filepath.Join("..", "..")
	found := make(map[string]int)
	for _, path := range markdownFiles(t, root) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		blocks, _ := testutil.Blocks(string(text))
		for _, b := range blocks {
			if b.Kind == "" {
				continue
			}
			found[b.Kind]++
			check, known := codeChecks[b.Kind]
			if !known {
				t.Errorf("%s:%d: no check of code in %s", path, b.Line, b.Kind)
			} else if err := check(b); err != nil {
				t.Errorf("%s:%d: %v", path, b.Line, err)
			}
		}
	}
	for kind := range codeChecks {
		if found[kind] == 0 {
			t.Errorf("no document has code in %s", kind)
		}
	}
	t.Log(found)
}

// The checks find what is wrong.
func TestCodeChecks(t *testing.T) {
	for kind, text := range map[string]string{
		"sh":      "netnice ls | |\n",
		"console": "$ netnice ls (\nno limits\n",
		"go":      "x  := 1\n",
		"python":  "def f(:\n",
		"c":       "int x = nothing;\n",
		"rust":    "let x = ;\n",
		"js":      "let = (;\n",
	} {
		program := map[string]string{"python": "python3", "c": "cc", "rust": "rustc", "js": "node"}[kind]
		if _, err := exec.LookPath(program); program != "" && err != nil {
			t.Logf("%s is not installed", program)
			continue
		}
		if codeChecks[kind](testutil.Block{Kind: kind, Text: text}) == nil {
			t.Errorf("%s: %q passes", kind, text)
		}
	}
}
