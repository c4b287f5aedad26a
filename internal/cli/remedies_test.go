package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A remedy that is no command leads from one error to the next. These tests read remedies as the
// command line would: the subcommand exists, its flags do, and their values are taken.

// blank stands in a remedy for what is known only when it is printed.
const blank = "§"

var (
	aCommand      = regexp.MustCompile(`(sudo )?netnice ([a-z][a-z-]*)`)
	aPlaceholder  = regexp.MustCompile(`^[A-Z][A-Z-]*$|^\.\.\.$|` + blank)
	aVerb         = regexp.MustCompile(`%[-+#0-9.\[\]*]*[a-zA-Z]`)
	endOfSentence = `,.;:)"?`
)

// remedyRoot is the whole command line.
func remedyRoot() *cobra.Command {
	app, _ := testApp()
	root := app.root()
	app.persistent(root)
	return root
}

// checkRemedy parses each command that a text names, and returns how many there are. Of a text
// that is no remedy only what begins with sudo is a command.
func checkRemedy(t *testing.T, where, text string, isRemedy bool) (found int) {
	t.Helper()
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		at := aCommand.FindAllStringSubmatchIndex(line, -1)
		for i, m := range at {
			end := len(line)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			word, rest := line[m[4]:m[5]], strings.Fields(line[m[5]:end])
			if !isRemedy && m[2] < 0 || word == "on" { // "run netnice on the machine itself"
				continue
			}
			if m[5] < len(line) && line[m[5]] == ':' { // a subject: netnice name:curl 1MB/s
				continue
			}
			found++
			checkWords(t, where+": "+line, word, rest)
		}
	}
	return found
}

// checkWords parses one command, as far as it is none of prose.
func checkWords(t *testing.T, where, name string, words []string) {
	t.Helper()
	cmd := commandNamed(remedyRoot(), name)
	if cmd == nil {
		t.Errorf("%s: there is no command netnice %s", where, name)
		return
	}
	if len(words) > 0 {
		if inner := commandNamed(cmd, strings.TrimRight(words[0], endOfSentence)); inner != nil {
			cmd, words = inner, words[1:]
		}
	}
	cmd.InitDefaultHelpFlag()
	for i, word := range words {
		word = strings.TrimRight(word, endOfSentence)
		if word == "--" {
			return // the rest is another program's
		}
		text, isFlag := strings.CutPrefix(word, "--")
		if !isFlag || strings.Contains(text, blank) {
			continue
		}
		flag, value, given := strings.Cut(text, "=")
		f := lookUpFlag(cmd, flag)
		switch {
		case f == nil:
			t.Errorf("%s: %s has no flag --%s", where, cmd.CommandPath(), flag)
			continue
		case f.NoOptDefVal != "" && !given:
			continue // a switch
		case !given && i+1 < len(words):
			value = strings.TrimRight(words[i+1], `,;:)"`)
		}
		if aPlaceholder.MatchString(value) {
			continue
		}
		if value == "" || strings.HasPrefix(value, "--") {
			t.Errorf("%s: --%s has no value", where, flag)
		} else if err := f.Value.Set(strings.Trim(value, "'")); err != nil {
			t.Errorf("%s: --%s %s: %v", where, flag, value, err)
		}
	}
}

func commandNamed(of *cobra.Command, name string) *cobra.Command {
	i := slices.IndexFunc(of.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
	if i < 0 {
		return nil
	}
	return of.Commands()[i]
}

func lookUpFlag(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

// What wrong use is answered with is a command that would be taken.
func TestRemediesOfWrongUse(t *testing.T) {
	for _, c := range []struct{ args, remedy string }{
		{"set --user bob", "netnice set user:bob --up 10MB/s"},
		{"set --user bob --up 50%", "netnice show --link DEVICE"},
		{"run --up 1MB/s", "netnice run --up 10MB/s -- CMD ARGS"},
		{"run -- true", "netnice run --up 10MB/s -- CMD ARGS"},
		{"power 4711 abc", "netnice power 4711 25"},
		{"power --slots 1ms", "netnice power PID 40 --slots 1ms"},
		{"exec 30", "netnice exec 30 CMD ARGS"},
		{"exec much true", "netnice exec 30 CMD ARGS"},
		{"fair", "netnice fair --total 10MB/s 4711 4712"},
		{"fair --leave 4711=3", "netnice fair --leave 4711"},
		{"fair --leave 4711 --up 1MB/s", "netnice fair --group NAME --up RATE"},
		{"reserve --user bob --link eth0", "netnice reserve user:bob --link eth0 --period 10ms --slice 2ms"},
		{"reserve --user bob --release --slice 1ms", "netnice reserve user:bob --release"},
		{"reserve --user bob --grant 20%", "netnice reserve user:bob --link eth0 --grant 20%"},
		{"reserve --pid 4711 --cpu-slice 5ms", "netnice reserve --pid P --cpu-period 20ms --cpu-slice 5ms"},
		{"reserve --pid 4711 --rate 1mbit", "netnice reserve --pid P --rate 400mbit --cpu auto"},
		{"link eth0", "netnice link eth0 --rate 50mbit"},
		{"link eth0 --mpu 64", "netnice link eth0 --overhead 10 --atm"},
		{"adapt --share 30%", "netnice adapt 192.0.2.7 --share 30%"},
		{"adapt 192.0.2.7 maybe", "netnice adapt 192.0.2.7 off"},
		{"system --dry-run", "netnice system --input-meter=off --dry-run"},
		{"probe", "netnice probe example.net"},
		{"why 4711/5 --fd 5", "netnice why 4711 --fd 5"},
		{"ls --nosuch", "netnice ls --help"},
	} {
		t.Run(c.args, func(t *testing.T) {
			app, out := testApp()
			require.Contains(t, []int{exitUsage, exitNotRun}, app.Run(t.Context(), append([]string{"netnice"}, strings.Fields(c.args)...)), out)
			_, remedy, _ := strings.Cut(out.String(), "\n")
			require.Contains(t, remedy, c.remedy)
			require.NotZero(t, checkRemedy(t, c.args, remedy, true), "a command")
		})
	}
}

// remedyArguments are the functions that take a remedy, and which of their arguments it is.
func remedyArguments() map[string]int {
	return map[string]int{"fail": 0, "wish": 0, "bad": 0, "badPower": 0, "problem": 1, "Denied": 1, "notFound": 1, "badSubject": 2}
}

// source is the text of one package's Go files.
type source struct {
	files  map[string]*ast.File
	consts map[string][]string // by name, of all functions
}

// Every remedy in the program is a command that would be taken.
func TestRemediesAreCommands(t *testing.T) {
	found := 0
	for _, dir := range []string{"../../internal", "../../client", "../../api"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			// what is only for tests is no remedy
			if err == nil && d.IsDir() && !strings.HasSuffix(path, "test") && d.Name() != "testutil" && d.Name() != "testdata" {
				found += checkSource(t, readSource(t, path))
			}
			return err
		}))
	}
	require.Greater(t, found, 50, "they are looked for where they are no more")
}

func readSource(t *testing.T, dir string) source {
	t.Helper()
	s := source{files: map[string]*ast.File{}, consts: map[string][]string{}}
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

// checkSource checks what remedies a package has.
func checkSource(t *testing.T, s source) (found int) {
	t.Helper()
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
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok && slices.Contains([]string{"Hint", "hint", "Remedy", "Example"}, id.Name) {
					remedy(n.Value)
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if at, ok := to.(*ast.SelectorExpr); ok && at.Sel.Name == "hint" && i < len(n.Rhs) {
						remedy(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				if at, ok := remedyArguments()[nameOf(n.Fun)]; ok && at < len(n.Args) {
					remedy(n.Args[at])
				}
			case *ast.BasicLit:
				text := s.text(n)
				if strings.HasSuffix(text, " ") {
					text += blank // it goes on
				}
				found += checkRemedy(t, name, text, false)
			}
			return true
		})
	}
	return found
}

// nameOf is what a function is called by.
func nameOf(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// text is what an expression says, with blanks for what only a run knows.
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
