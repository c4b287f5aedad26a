package testutil

import (
	"errors"
	"os"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
)

// MustRunPrivileged is the environment variable that, set to 1, turns the
// skipping of privileged tests into a failure.
const MustRunPrivileged = "NETNICE_MUST_RUN_PRIVILEGED"

// RequireRoot skips the test unless it may make network namespaces; with
// NETNICE_MUST_RUN_PRIVILEGED=1 in the environment it fails instead.
func RequireRoot(t testing.TB) {
	t.Helper()
	err := Privileged()
	switch {
	case err == nil:
	case os.Getenv(MustRunPrivileged) == "1":
		t.Fatalf("%v, and %s=1 forbids to skip", err, MustRunPrivileged)
	default:
		t.Skipf("%v", err)
	}
}

// Privileged returns nil if the caller may make a test bed, and the stage of the tests lets it.
func Privileged() error {
	if os.Getenv(StageVariable) == stageQuick {
		return errors.New("needs root, which make quick does without")
	}
	return testbed.Privileged()
}
