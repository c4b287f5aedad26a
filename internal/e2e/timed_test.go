package e2e

import (
	"testing"
	"time"

	"github.com/netnice/netnice/internal/testbed"
)

// A limit for a time ends by itself, also while no daemon runs. What was set before holds again, or nothing.
func TestLimitForATime(t *testing.T) {
	t.Parallel()
	f := newField(upStage(t))
	was, free := f.send(testbed.SenderConfig{}), f.send(testbed.SenderConfig{})
	f.must("set", "--pid", was.pid(), "--up", "8MB/s")
	f.must("set", "--pid", free.pid(), "--up", "1MB/s", "--for", "4s")
	begin := f.must("set", "--pid", was.pid(), "--up", "2MB/s", "--for", "4s")
	end := begin.Add(4 * time.Second)
	confirmed := f.send(testbed.SenderConfig{})
	f.must("set", "--pid", confirmed.pid(), "--up", "3MB/s", "--confirm")
	f.must("set", "--pid", confirmed.pid(), "--up", "1MB/s", "--for", "4s")
	f.must("confirm", confirmed.pid())
	f.daemons[0].kill()
	f.holds("for a time", begin.Add(200*time.Millisecond), 2e6, was.port)
	f.holds("for a time, else free", begin.Add(200*time.Millisecond), 1e6, free.port)
	f.until(end)
	f.holds("as before", end.Add(300*time.Millisecond), 8e6, was.port)
	f.free("without another limit", end.Add(300*time.Millisecond), freely, free.port)
	f.holds("confirmed", end.Add(300*time.Millisecond), 1e6, confirmed.port)
	f.daemon()
	if !eventually(3*time.Second, func() bool { return len(f.nodes()) == 2 }) {
		t.Errorf("limits on %v with the next daemon, want the one that was set before and the one that was confirmed", f.nodes())
	}
	f.holds("with the next daemon", testbed.Now(), 8e6, was.port)
}
