package hostpath

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// The daemon finds a network namespace by some process in it, such as the command that has sent the request. After the
// end of that process, later measurements still take place in that namespace.
func TestPathFromWhereAProcessHasEnded(t *testing.T) {
	p := testutil.MustPair(t)
	cmd := exec.Command("sleep", "60")
	if err := p.A.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	path, err := Open(ctx, Config{To: p.B4, Namespace: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	m, err := path.Measure(ctx)
	if err != nil || m.BytesPerSec == 0 {
		t.Errorf("measured %d bytes/s: %v", m.BytesPerSec, err)
	}
	if err := path.Close(); err != nil {
		t.Error(err)
	}
}
