package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil/vm"
)

// TestGeneratedTraffic has each kernel limit the generated programs of NETNICE_TEST_SEEDS. One takes a minute, and
// an emulated processor stands still so often that few windows can be judged. The test is therefore a tool, no part
// of make test-vm.
func TestGeneratedTraffic(t *testing.T) {
	seeds := os.Getenv("NETNICE_TEST_SEEDS")
	if seeds == "" {
		t.Skip("only what NETNICE_TEST_SEEDS names: generated programs")
	}
	endToEnd(t, "^TestGenerated$", "NETNICE_TEST_SEEDS="+seeds)
}

// TestEndToEnd runs on each kernel the end-to-end tests that NETNICE_TEST_VM_RUN names.
func TestEndToEnd(t *testing.T) {
	pattern := os.Getenv("NETNICE_TEST_VM_RUN")
	if pattern == "" {
		t.Skip("only what NETNICE_TEST_VM_RUN names: a regexp of end-to-end tests")
	}
	endToEnd(t, pattern, "NETNICE_TEST_STAGE="+os.Getenv("NETNICE_TEST_STAGE"))
}

// interpreter is Debian's Python, which internal/e2e uses, too.
const interpreter = "/usr/bin/python3"

// endToEnd runs tests of internal/e2e in a guest that has Python.
func endToEnd(t *testing.T, pattern, env string) {
	t.Helper()
	vm.Require(t)
	program := build(t)
	library := python(t, `import sysconfig; print(sysconfig.get_path("stdlib"))`)
	for _, series := range kernels() {
		t.Run(filepath.Base(series), func(t *testing.T) {
			vm.RunTests(t, vm.Config{
				Kernel:    series,
				Files:     map[string]string{"/bin/netnice": program, library: library},
				Programs:  []string{interpreter},
				Libraries: []string{filepath.Join(library, "lib-dynload")},
				Env:       []string{"NETNICE_TEST_BUILT=/bin/netnice", env},
				MemoryMiB: 2048,
				Timeout:   2 * time.Hour,
			}, "github.com/netnice/netnice/internal/e2e", pattern)
		})
	}
}

func python(t *testing.T, text string) string {
	t.Helper()
	out, err := exec.Command(interpreter, "-c", text).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
