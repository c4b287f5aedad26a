package pacing

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

func TestOpenDown(t *testing.T) {
	k, err := Open(Options{PinDir: "/sys/fs/bpf/nn-test", CgroupRoot: cgroupRoot(), Beside: true})
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
