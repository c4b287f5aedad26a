package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/netnice/netnice/internal/testbed"
)

// TestFormerRelease replaces the daemon of a former release under traffic. The limits hold throughout, also while the
// former program is tried again, which refuses the newer state. `netnice down` then cleans up after both.
func TestFormerRelease(t *testing.T) {
	former := os.Getenv("NETNICE_TEST_FORMER")
	if former == "" {
		t.Skip("only what NETNICE_TEST_FORMER names: the program of a former release")
	}
	t.Parallel()
	s := newStage(t)
	s.preload = true // the former program may not know that flag
	before := ours(t)
	s.program = former
	f := firstRelease(s)
	s.program = ""
	f.secondRelease().kill()

	s.program = former
	begin := testbed.Now()
	r := s.netnice("daemon", "--config-dir", "/run/no-rules")
	if r.code == 0 || !strings.Contains(r.err, "version") {
		t.Errorf("the former daemon ends with %d and says %q", r.code, r.err)
	}
	t.Logf("the former daemon says %q", r.err)
	f.hold("without a daemon", begin)

	s.program = ""
	f.free("lifted", s.must("down"), freely, f.x.port)
	s.leaves(f.made, before)
}
