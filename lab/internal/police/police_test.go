package police

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/netnice/netnice/internal/testutil"
)

func TestIsRemoved(t *testing.T) {
	testutil.RequireRoot(t)
	p, err := Start(1e6)
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.link.Info()
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Dir()); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup is still there (%v)", err)
	}
	if l, err := link.NewFromID(info.ID); err == nil {
		l.Close()
		t.Error("the program is still attached")
	}
}

func TestDepth(t *testing.T) {
	for rate, want := range map[uint64]uint64{10e6: 200e6, 1250e6: 200e6, 72 << 10: 1e9} {
		if got := depthNanos(rate); got != want {
			t.Errorf("%d bytes/s: %d ns, want %d", rate, got, want)
		}
	}
}
