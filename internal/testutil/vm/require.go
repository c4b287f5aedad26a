package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// CompileTest compiles the tests of a package into a static program in dir and returns its path. The package is an
// import path, or a folder that starts with "./".
func CompileTest(ctx context.Context, pkg, dir string) (string, error) {
	program := filepath.Join(dir, path.Base(pkg)+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile tests of %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// Require skips a test that boots a guest, unless $NETNICE_TEST_VM is 1: then a missing requirement is a failure.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv("NETNICE_TEST_VM") != "1" {
		t.Skip("boots another kernel: NETNICE_TEST_VM=1, or make test-vm")
	}
	for _, tool := range []string{"qemu-system-x86_64", "dpkg-deb", "apt-get", "xz"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v (apt-get install qemu-system-x86 dpkg apt xz-utils)", err)
		}
	}
}

// RunTests runs the tests of a package whose names match the regular expression
// pattern ("" = all) in a guest, and fails if they do. c.Program and c.Args are
// overwritten.
func RunTests(t *testing.T, c Config, pkg, pattern string) *Result {
	t.Helper()
	Require(t)
	program, err := CompileTest(t.Context(), pkg, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.Program, c.Args = program, []string{"-test.v", "-test.run", pattern}
	res, err := Run(t.Context(), c)
	if res != nil {
		t.Logf("%s, boot %s, ran %s\n%s%s", res.Kernel, res.Boot, res.Ran, res.Stdout, res.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != 0 {
		t.Errorf("exit status %d", res.ExitCode)
	}
	return res
}
