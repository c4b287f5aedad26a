package probe

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/internal/testutil"
)

// The thread has its former priority afterwards.
func TestPriorityIsPutBack(t *testing.T) {
	testutil.RequireRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	policy := func() uint32 {
		t.Helper()
		a, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return a.Policy
	}
	before := policy()
	restore := first()
	if policy() != unix.SCHED_FIFO {
		t.Errorf("policy %d meanwhile", policy())
	}
	restore()
	if policy() != before {
		t.Errorf("policy %d before, %d after", before, policy())
	}
}
