package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// program is the netnice under test, built by TestMain.
var program string

// work is a folder that everybody may read; scripts and the program are in it.
var work string

func TestMain(m *testing.M) {
	testutil.MaybeRunTraffic()
	maybeRunAgent()
	testutil.Supervise()
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// started has the daemons of all tests, by process id.
var started sync.Map

// endDaemonsInTime kills the daemons if the tests are about to be ended from
// outside, when no test's own clean-up runs: they would hold the machine.
func endDaemonsInTime() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	var timeout <-chan time.Time
	if d, err := time.ParseDuration(flag.Lookup("test.timeout").Value.String()); err == nil && d > 0 {
		timeout = time.After(d - 2*time.Second)
	}
	select {
	case <-ended:
		defer os.Exit(1)
	case <-timeout:
	}
	started.Range(func(_, d any) bool {
		_ = d.(*daemon).cmd.Process.Kill() // gone already is as good
		return true
	})
}

func run(m *testing.M) (code int, err error) {
	if testutil.Privileged() != nil {
		return m.Run(), nil // every test skips or fails by RequireRoot
	}
	go endDaemonsInTime()
	go cpus.watch()
	go cpus.feel()
	// Daemons of other runs, and the user's own, may be up.
	name, value, _ := strings.Cut(testutil.Beside, "=")
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
	program = filepath.Join(work, "netnice")
	build := exec.Command("go", "build", "-o", program, "github.com/netnice/netnice/cmd/netnice")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build netnice: %w\n%s", err, out)
	}
	return m.Run(), nil
}
