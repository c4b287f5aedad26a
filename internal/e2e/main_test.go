package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// netniceBinary is the netnice under test, built by TestMain.
var netniceBinary string

// timeoutScale multiplies the time that tests wait for an event: an emulated processor is slow.
var timeoutScale time.Duration = 1

// work is a folder that everybody may read; scripts and the program are in it.
var work string

func TestMain(m *testing.M) {
	testbed.MaybeRunTraffic()
	maybeRunAgent()
	maybeRunGuideProgram()
	testutil.Supervise()
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if testutil.Privileged() != nil {
		return m.Run(), nil // every test skips or fails by RequireRoot
	}
	go cpus.watch()
	cpus.watchWakeups()
	// Daemons of other runs, and the user's own, may be up.
	name, value, _ := strings.Cut(testbed.Beside, "=")
	if err := os.Setenv(name, value); err != nil {
		return 0, err
	}
	if work, err = os.MkdirTemp("", testutil.RunName()); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Chmod(work, 0o755); err != nil { // other users run what is inside
		return 0, err
	}
	if netniceBinary = os.Getenv("NETNICE_TEST_BUILT"); netniceBinary != "" { // in a guest, which has no compiler
		timeoutScale = 10
		return m.Run(), nil
	}
	netniceBinary = filepath.Join(work, "netnice")
	build := exec.Command("go", "build", "-o", netniceBinary, "github.com/netnice/netnice/cmd/netnice")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build netnice: %w\n%s", err, out)
	}
	return m.Run(), nil
}
