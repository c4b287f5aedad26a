// Package arch holds the rules for imports between the packages. It has no other code.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/netnice/netnice/"

// rule names the imports that the non-test files of a folder may have beside the standard
// library. Only, if set, is the whole list of allowed packages, our own and others'.
type rule struct {
	folder string
	only   []string
	never  []string
	why    string
}

func rules() []rule {
	kernel := []string{module + "internal/bpf", "github.com/cilium/ebpf", "github.com/vishvananda"}
	return []rule{
		{folder: "api", only: []string{}, why: "clients in other programs import it"},
		{folder: "internal/limit", only: []string{module + "api", module + "internal/enforce", module + "internal/units"}, why: "what is wanted knows no subject, and nothing that is in force"},
		{folder: "client", only: []string{module + "api"}, why: "it only talks to the daemon"},
		{folder: "cmd/netnice", never: []string{"github.com/cilium/ebpf", "github.com/vishvananda", "github.com/spf13/cobra"}, why: "it connects packages, and does nothing itself"},
		{folder: "internal/cli", never: append(kernel, module+"internal/daemon", module+"internal/enforce", module+"internal/desired", module+"internal/demo", module+"internal/testbed"), why: "commands call the daemon; what they run in their own process comes from cmd/netnice"},
		{folder: "internal/linkrate", only: []string{module + "api", module + "internal/limit", module + "internal/probe"}, why: "it knows the daemon by an interface"},
		{folder: "internal/stall", only: []string{module + "internal/identity", "golang.org/x/sys/unix"}, why: "a daemon that does not answer is looked at, not asked"},
		{folder: "internal/background", only: []string{"golang.org/x/sys/unix"}, why: "it starts processes, whatever these are for"},
		{folder: "internal/units", only: []string{}, why: "text to numbers, no more"},
		{folder: "internal/similar", only: []string{}, why: "words to words, no more"},
		{folder: "internal/pulse", only: []string{}, why: "it ticks, whoever looks"},
		{folder: "internal/failure", only: []string{}, why: "it logs errors, whatever they are of"},
		{folder: "internal/daemon", never: kernel, why: "decisions make no kernel calls: enforce.Kernel does"},
		{folder: "internal/desired", only: []string{module + "api", module + "internal/destination", module + "internal/enforce", module + "internal/identity", module + "internal/limit", module + "internal/rules", module + "internal/statefile", "golang.org/x/sys/unix"}, why: "the desired state knows neither the daemon nor the kernel side"},
		{folder: "internal/plan", only: []string{module + "internal/desired", module + "internal/destination", module + "internal/enforce", module + "internal/identity", module + "internal/limit"}, why: "functions from records to what the kernel should hold"},
		{folder: "internal/statefile", only: []string{module + "api", module + "internal/identity", "github.com/google/renameio/v2", "golang.org/x/sys/unix"}, why: "files know no limits"},
		{folder: "internal/request", never: append(kernel, module+"internal/daemon", module+"internal/cli", module+"internal/desired"), why: "the way of a request is the same whatever it changes"},
		{folder: "internal/scope", never: append(kernel, module+"internal/daemon", module+"internal/cli"), why: "a process is moved whoever limits it"},
		{folder: "internal/rules", only: []string{module + "internal/limit", module + "internal/similar", module + "internal/units", "github.com/google/renameio/v2", "github.com/pelletier/go-toml/v2", "github.com/pelletier/go-toml/v2/unstable", "golang.org/x/sys/unix"}, why: "text to rules, and rules to matches"},
		{folder: "internal/source", never: append(kernel, module+"internal/daemon", module+"internal/cli"), why: "a source says what it wants, and knows who brings it into force by an interface"},
		{folder: "internal/source/destinations", never: []string{module + "internal/desired"}, why: "it sees copies of nodes, and no records"},
		{folder: "internal/source/prefixlists", only: []string{module + "internal/destination", module + "internal/observe", module + "internal/statefile"}, why: "lists know neither nodes nor who limits"},
		{folder: "internal/apiserver", never: kernel, why: "handlers know their backend only"},
		{folder: "internal/auth", never: kernel, why: "rights follow from credentials"},
		{folder: "internal/bpf", never: []string{module + "internal/daemon", module + "internal/cli", module + "api"}, why: "the kernel object knows nobody above it"},
		{folder: "internal/cpu", never: append(kernel, module+"internal/daemon", module+"internal/cli", module+"internal/auth"), why: "groups know nobody above them, and no network"},
		{folder: "internal/cpushare", never: append(kernel, module+"internal/daemon", module+"internal/cli"), why: "shares know no daemon but by an interface, and no network"},
		{folder: "internal/adaptation", never: append(kernel, module+"internal/daemon", module+"internal/cli", module+"internal/identity"), why: "it sets limits as a client would, and knows the daemon by an interface"},
		{folder: "internal/observe", never: append(kernel, module+"internal/daemon", module+"internal/cli", module+"internal/cpushare", module+"internal/adaptation"), why: "it reads what its caller publishes, and knows nobody who sets limits"},
		{folder: "internal/reference", never: append(kernel, module+"internal/daemon", module+"internal/enforce"), why: "it reads tables and comments, and starts nothing"},
		{folder: "internal/adaptation/hostpath", only: []string{module + "api", module + "internal/adapt", module + "internal/probe"}, why: "a path is opened and measured without limits"},
		{folder: "internal/account", only: []string{}, why: "names and numbers, for whoever asks"},
		{folder: "internal/adapt", only: []string{}, why: "a law of control: its caller has the sockets and the limits"},
		{folder: "internal/probe", only: []string{module + "internal/netnamespace", "golang.org/x/net/icmp", "golang.org/x/net/ipv4", "golang.org/x/net/ipv6", "golang.org/x/sys/unix", "github.com/vishvananda/netlink"}, why: "it measures a path and knows of no limit; plots are its own"},
		{folder: "internal/testbed", never: []string{module + "internal/testutil", module + "internal/daemon", module + "internal/cli", module + "internal/enforce"}, why: "tests, the lab and netnice demo share it: it knows none of them"},
		{folder: "internal/enforce/shaping/netdevice", never: []string{module + "internal/enforce/pacing"}, why: "devices know no queue"},
		{folder: "internal/enforce/shaping/queuepair", never: []string{module + "internal/enforce/pacing"}, why: "a queue knows no limit"},
		{folder: "internal/enforce", never: []string{module + "internal/daemon", module + "internal/cli", module + "api"}, why: "enforcement knows nobody above it"},
	}
}

func TestImports(t *testing.T) {
	for _, r := range rules() {
		t.Run(r.folder, func(t *testing.T) {
			root := filepath.Join("..", "..", filepath.FromSlash(r.folder))
			seen := 0
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				// Packages of fakes for tests may import the packages that tests import.
				if strings.HasSuffix(filepath.Dir(path), "test") {
					return nil
				}
				f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
				if err != nil {
					return err
				}
				seen++
				for _, imp := range f.Imports {
					name, err := strconv.Unquote(imp.Path.Value)
					if err != nil {
						return err
					}
					if broken(r, name) {
						t.Errorf("%s imports %s: %s", path, name, r.why)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if seen == 0 {
				t.Fatalf("no Go file in %s", r.folder)
			}
		})
	}
}

func broken(r rule, name string) bool {
	for _, n := range r.never {
		if name == n || strings.HasPrefix(name, n+"/") {
			return true
		}
	}
	if r.only == nil || !strings.Contains(strings.Split(name, "/")[0], ".") {
		return false // the standard library
	}
	if strings.HasPrefix(name, module+r.folder) {
		return false
	}
	for _, n := range r.only {
		if name == n {
			return false
		}
	}
	return true
}

// The program does not link the package that writes docs/reference.
func TestProgramLinksNoReference(t *testing.T) {
	for folder, ours := range imports(t) {
		if ours["internal/reference"] && !strings.HasPrefix(folder, "internal/reference/") {
			t.Errorf("%s imports internal/reference, which is for go generate alone", folder)
		}
	}
}

func TestProductLinksNoTestHelpers(t *testing.T) {
	for folder, ours := range imports(t) {
		if ours["internal/testutil"] {
			t.Errorf("%s imports internal/testutil: what tests and the product share is in internal/testbed", folder)
		}
	}
}
