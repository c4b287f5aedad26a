package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testutil"
)

// Many connections that begin together are not a chunk each ahead of their
// limit: without deposits their first second is 1.34 and 1.20 of it.
func TestFirstSecond(t *testing.T) {
	for _, crowd := range []struct {
		say         string
		rate        float64
		connections int
	}{{"128KB/s", 128e3, 16}, {"1MB/s", 1e6, 64}} {
		t.Run(crowd.say, func(t *testing.T) {
			t.Parallel()
			f := newField(upStage(t))
			x := f.sender(testutil.SenderConfig{Connections: crowd.connections})
			f.must("set", "--pid", x.pid(), "--up", crowd.say)
			begin := x.begin()
			got := f.rate(begin, begin.Add(time.Second), x.port)
			t.Logf("%d connections: %.3f of %s in the first second", crowd.connections, got/crowd.rate, crowd.say)
			if got > 1.08*crowd.rate || got < 0.8*crowd.rate && cpus.excuse(begin, testutil.Now()) == "" {
				t.Errorf("%.0f bytes/s in the first second under a limit of %s", got, crowd.say)
			}
		})
	}
}
