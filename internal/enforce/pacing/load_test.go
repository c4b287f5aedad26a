package pacing

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/netnice/netnice/internal/testutil"
)

func TestOpenDown(t *testing.T) {
	testutil.RequireRoot(t)
	k, err := Open(Options{PinDir: "/sys/fs/bpf/" + testutil.RunName() + "open", CgroupRoot: cgroupRoot(), Beside: true})
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		t.Fatalf("%-.6000v", ve)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(k.Attached())
	if err := k.Down(); err != nil {
		t.Fatal(err)
	}
}

func cgroupRoot() string {
	if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
		return "/sys/fs/cgroup/unified"
	}
	return "/sys/fs/cgroup"
}
