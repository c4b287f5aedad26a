package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testbed"
	"github.com/netnice/netnice/internal/testutil"
)

// Limits of the host and of root also cover the traffic of other runs of these tests on the same machine. Any daemon
// answers socket options. A test of such limits has the machine alone; all others share it.

// The locks of the machine are files, so they hold between programs. A test that waits for the machine alone holds
// the gate. Then no new test can share the machine, and the waiting test gets it.
const (
	gateLock    = "netnice-e2e-gate.lock"
	machineLock = "netnice-e2e-machine.lock"
	lockFor     = 4 * time.Minute // at most; later some test hangs, and waiting helps no other
)

// exclusive has the tests, by name, that have the machine alone.
var exclusive sync.Map

// machineAlone gives a test the machine until it ends.
func machineAlone(t *testing.T) {
	t.Helper()
	testutil.RequireRoot(t)
	if _, already := exclusive.LoadOrStore(t.Name(), true); already {
		return
	}
	gate := lock(t, gateLock, unix.LOCK_EX)
	machine := lock(t, machineLock, unix.LOCK_EX)
	t.Cleanup(func() {
		exclusive.Delete(t.Name())
		_, _ = machine.Close(), gate.Close() // closing unlocks them
	})
}

// machineShared keeps others from having the machine alone until the caller gives it back by the returned function.
func machineShared(t *testing.T) (give func()) {
	t.Helper()
	top, _, _ := strings.Cut(t.Name(), "/")
	if _, alone := exclusive.Load(top); alone {
		return func() {}
	}
	awaitRoom(top)
	gate := lock(t, gateLock, unix.LOCK_SH)
	machine := lock(t, machineLock, unix.LOCK_SH)
	_ = gate.Close()
	sharing.Add(1)
	return func() {
		sharing.Add(-1)
		_ = machine.Close()
	}
}

// A test that starts while the processors are busy waits before it begins. Fewer tests therefore run at once on a slow
// machine.
var (
	sharing  atomic.Int32 // stages
	admitted sync.Map     // tests, by name
	entrance sync.Mutex   // one at a time
)

const (
	roomBusy  = 0.7                    // part of the processors' time
	roomLook  = 500 * time.Millisecond // long enough to include the test that began last
	roomAwait = 30 * time.Second       // at most
)

// awaitRoom has a test begin when the others leave the processors some time.
func awaitRoom(test string) {
	if _, already := admitted.LoadOrStore(test, true); already {
		return
	}
	entrance.Lock()
	defer entrance.Unlock()
	for end := time.Now().Add(roomAwait); sharing.Load() > 0 && time.Now().Before(end); {
		from := testbed.Now()
		time.Sleep(roomLook)
		if cpus.busy(from, testbed.Now()) < roomBusy {
			return
		}
	}
}

// foreignDaemons lists the daemons of netnice that this run has not started: two of them disturb each other.
func foreignDaemons() (list []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if len(args) > 1 && filepath.Base(args[0]) == "netnice" && args[1] == "daemon" {
			if exe, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe")); exe != netniceBinary {
				list = append(list, strings.Join(args, " "))
			}
		}
	}
	return list
}

// lock locks a file until the caller closes it.
func lock(t *testing.T, name string, how int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), name), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			if waited := time.Since(begin); waited > time.Second {
				t.Logf("waited %v for other runs of these tests", waited.Round(time.Second))
			}
			return f
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EWOULDBLOCK) && time.Since(begin) < lockFor:
			time.Sleep(20 * time.Millisecond)
		default:
			_ = f.Close()
			t.Fatalf("wait for %s: %v", f.Name(), err)
		}
	}
}
