package testutil

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MustRunPrivileged is the environment variable that, set to 1, turns the
// skipping of privileged tests into a failure.
const MustRunPrivileged = "NETNICE_MUST_RUN_PRIVILEGED"

// TB is the part of testing.TB that this package uses; it is declared here so
// that programs other than tests can use the package without linking testing.
type TB interface {
	Helper()
	Cleanup(func())
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RequireRoot skips the test unless it may make network namespaces; with
// NETNICE_MUST_RUN_PRIVILEGED=1 in the environment it fails instead.
func RequireRoot(t TB) {
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

// Privileged returns nil if the caller has the capabilities that namespaces,
// devices and queueing disciplines need.
func Privileged() error {
	if os.Getenv(StageVariable) == stageQuick {
		return fmt.Errorf("needs root, which make quick does without")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  uint
		name string
	}{{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return fmt.Errorf("needs root (%s is missing)", c.name)
		}
	}
	return nil
}
