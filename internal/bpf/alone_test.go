package bpf

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

func TestOthersOf(t *testing.T) {
	netnice := func(id ebpf.ProgramID) attachment { return attachment{id, sockopsProgram} }
	somebody, own := attachment{7, "tcp_tuning"}, []ebpf.ProgramID{8}
	for name, c := range map[string]struct {
		attached []attachment
		own      []ebpf.ProgramID
		want     []ebpf.ProgramID
	}{
		"nobody":                         {nil, nil, nil},
		"somebody else's":                {[]attachment{somebody}, nil, nil},
		"another netnice":                {[]attachment{somebody, netnice(8)}, nil, []ebpf.ProgramID{8}},
		"two others":                     {[]attachment{netnice(8), netnice(9)}, nil, []ebpf.ProgramID{8, 9}},
		"own after a crash":              {[]attachment{somebody, netnice(8)}, own, nil},
		"own after a crash, and another": {[]attachment{netnice(9), netnice(8)}, own, nil},
		"pinned, but on another cgroup":  {[]attachment{netnice(9)}, own, []ebpf.ProgramID{9}},
	} {
		if got := othersOf(c.attached, c.own); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v instead of %v", name, got, c.want)
		}
	}
}

// Other instances recognize the program by its name. A change of the name in bpf/ must change sockopsProgram, too.
func TestSockopsProgramName(t *testing.T) {
	spec, err := loadNetnice()
	if err != nil {
		t.Fatal(err)
	}
	if p := spec.Programs[sockopsProgram]; p == nil || p.Type != ebpf.SockOps {
		t.Errorf("%s is %+v", sockopsProgram, p)
	}
}

func TestUpError(t *testing.T) {
	seen := &UpError{CgroupRoot: "/sys/fs/cgroup", PinDir: "/sys/fs/bpf/other"}
	if !strings.HasSuffix(seen.Error(), "up already, with its programs in /sys/fs/bpf/other") ||
		!strings.Contains(seen.Hint(), "netnice down --pin-dir /sys/fs/bpf/other") {
		t.Errorf("%s\n%s", seen, seen.Hint())
	}
	unseen := &UpError{CgroupRoot: "/sys/fs/cgroup"}
	if !strings.Contains(unseen.Error(), "on /sys/fs/cgroup") || strings.Contains(unseen.Hint(), "--pin-dir") {
		t.Errorf("%s\n%s", unseen, unseen.Hint())
	}
}
