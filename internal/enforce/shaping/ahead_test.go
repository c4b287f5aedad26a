package shaping

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/netnice/netnice/internal/bpf"
	"github.com/netnice/netnice/internal/testutil"
)

// staying opens the kernel side of a daemon that stays, and so loads objects before a limit needs them.
func staying(t *testing.T) *Kernel {
	t.Helper()
	testutil.RequireRoot(t)
	opts := options()
	opts.Preload = true
	k, err := Open(opts)
	must(t, err)
	return k
}

// early returns the objects that are loaded, or being loaded, before a limit needs them.
func early(k *Kernel) (*loading[*bpf.Shaping], *loading[*bpf.Sending]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ahead.shaping, k.ahead.sending
}

// loaded waits until both objects are loaded ahead, and returns the one for ingress.
func loaded(t *testing.T, k *Kernel) *bpf.Shaping {
	t.Helper()
	in, out := early(k)
	if in == nil || out == nil {
		t.Fatal("nothing is loaded ahead")
	}
	<-in.done
	<-out.done
	must(t, in.err)
	must(t, out.err)
	return in.obj
}

// TestLoadedAhead checks that a daemon that stays has loaded the objects before the first limit needs them. Until
// then nothing of them is pinned or attached. After the last limit the daemon has loaded objects again.
func TestLoadedAhead(t *testing.T) {
	elsewhere(t)
	before := devices(t)
	k := staying(t)
	obj := loaded(t, k)
	if k.base.IsShaping() || k.base.IsSending() {
		t.Error("what is loaded ahead is pinned")
	}
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("devices %v before, %v with what is loaded ahead", before, now)
	}
	begin := time.Now()
	must(t, k.SetNode(own(1e6)))
	took := time.Since(begin)
	t.Logf("the first limit took %v", took)
	if took > time.Second && os.Getenv("NETNICE_VM") == "" {
		t.Errorf("the first limit took %v, want less than a second", took)
	}
	if k.on.obj != obj {
		t.Error("the first limit has loaded once more")
	}
	if in, _ := early(k); in != nil {
		t.Error("it is loaded ahead while it is in use")
	}
	if !k.base.IsShaping() {
		t.Error("what is in use is not pinned")
	}
	must(t, k.RemoveNode(7))
	k.Drain()
	if again := loaded(t, k); again == obj {
		t.Error("the next limit gets what the last has left")
	}
	must(t, k.Down())
	if _, err := os.Stat(options().PinDir); err == nil {
		t.Error("the pins are there still")
	}
	if now := devices(t); !slices.Equal(now, before) {
		t.Errorf("devices %v before, %v after", before, now)
	}
}

// TestLoadedMeanwhile sets and lifts limits, and starts a successor, while objects are still being loaded. None of
// them waits until all loads are complete, and each finds the right state.
func TestLoadedMeanwhile(t *testing.T) {
	testutil.SkipUnlessAll(t, "TestLoadedAhead")
	elsewhere(t)
	k := staying(t)
	must(t, k.SetNode(own(1e6))) // while both objects are being loaded
	must(t, k.Close())           // while the object for egress is being loaded
	k = staying(t)
	if in, _ := early(k); in != nil {
		t.Error("what is taken over is loaded ahead")
	}
	if k.on == nil || k.on.nodes[7] == nil {
		t.Fatal("the limit was not taken over")
	}
	must(t, k.RemoveNode(7)) // the load starts again when the node has drained
	k.Drain()
	must(t, k.Down())
	k = staying(t)
	must(t, k.Down())
	if _, err := os.Stat(options().PinDir); err == nil {
		t.Error("the pins are there still")
	}
}
