package kernelfeatures

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const (
	lineV2      = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	lineUnified = "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	lineInside  = "30 24 0:26 /../docker/x /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
	lineV1      = "31 24 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n"
	lineBPF     = "32 24 0:28 / /sys/fs/bpf rw - bpf bpf rw,mode=700\n"
	lineBPFElse = "33 24 0:29 / /mnt/my\\040bpf rw - bpf bpf rw\n"
)

func TestMounts(t *testing.T) {
	for _, c := range []struct {
		name, mountinfo                string
		files                          []string
		layout, cgroup, bpffs          string
		haveCgroup, haveRoot, haveBPFF bool
	}{
		{"as systemd does it", lineV2 + lineBPF, nil, CgroupLayoutV2, "/sys/fs/cgroup", "/sys/fs/bpf", true, true, true},
		{"hybrid", lineV1 + lineUnified + lineBPF, nil, CgroupLayoutHybrid, "/sys/fs/cgroup/unified", "/sys/fs/bpf", true, true, true},
		{"v1 only, no bpffs", lineV1, nil, CgroupLayoutV1, "", "", false, false, false},
		{"nothing", "garbage\n", nil, CgroupLayoutNone, "", "", false, false, false},
		{"bpffs elsewhere", lineBPFElse, nil, CgroupLayoutNone, "", "/mnt/my bpf", false, false, true},
		{"the usual bpffs wins", lineBPF + lineBPFElse, nil, CgroupLayoutNone, "", "/sys/fs/bpf", false, false, true},
		{"a container's view", lineInside, nil, CgroupLayoutV2, "/sys/fs/cgroup", "", true, false, false},
		{"a cgroup namespace", lineV2, []string{"sys/fs/cgroup/cgroup.type"}, CgroupLayoutV2, "/sys/fs/cgroup", "", true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte(c.mountinfo)}}
			for _, f := range c.files {
				root[f] = &fstest.MapFile{Data: []byte("domain\n")}
			}
			f := &Features{}
			probeFiles(f, root)
			require.Equal(t, c.layout, f.CgroupLayout)
			require.Equal(t, c.cgroup, f.CgroupPath)
			require.Equal(t, c.bpffs, f.BPFFSPath)
			require.Equal(t, c.haveCgroup, f.CgroupV2.Have)
			require.Equal(t, c.haveRoot, f.CgroupRoot.Have)
			require.Equal(t, c.haveBPFF, f.BPFFS.Have)
			require.False(t, f.Systemd.Have)
		})
	}
}

func TestCPUController(t *testing.T) {
	const lineOther = "34 24 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset,cpuacct\n"
	for _, c := range []struct{ name, mountinfo, controllers, layout, at string }{
		{"v1 beside v2", lineUnified + lineOther + lineV1, "memory", CgroupLayoutV1, "/sys/fs/cgroup/cpu"},
		{"v2", lineV2, "cpuset cpu io", CgroupLayoutV2, "/sys/fs/cgroup"},
		{"v2 without it", lineV2 + lineOther, "cpuset io", "", ""},
		{"nothing", "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Features{}
			probeFiles(f, fstest.MapFS{
				"proc/self/mountinfo":              {Data: []byte(c.mountinfo)},
				"sys/fs/cgroup/cgroup.controllers": {Data: []byte(c.controllers + "\n")},
			})
			require.Equal(t, c.layout, f.CPULayout)
			require.Equal(t, c.at, f.CPUPath)
			require.Equal(t, c.at != "", f.CPUController.Have)
		})
	}
}

func TestSettings(t *testing.T) {
	f := &Features{}
	probeFiles(f, fstest.MapFS{
		"sys/kernel/security/lockdown":                       {Data: []byte("none [integrity] confidentiality\n")},
		"proc/sys/kernel/unprivileged_bpf_disabled":          {Data: []byte("2\n")},
		"proc/sys/net/ipv4/tcp_available_congestion_control": {Data: []byte("reno cubic bbr\n")},
		"run/systemd/system/x":                               {},
	})
	require.Equal(t, "integrity", f.Lockdown)
	require.Equal(t, "2", f.UnprivilegedBPF)
	require.Equal(t, []string{"reno", "cubic", "bbr"}, f.Congestion)
	require.True(t, f.Systemd.Have)
	require.True(t, f.CgroupV2.Unknown(), "no mountinfo")

	f = &Features{}
	probeFiles(f, fstest.MapFS{})
	require.Empty(t, f.Lockdown)
	require.Empty(t, f.Congestion)
}

func TestModuleLists(t *testing.T) {
	folder := t.TempDir()
	t.Run("no lists", func(t *testing.T) {
		l := &traffic{folders: []string{folder}}
		l.readLists()
		require.False(t, l.listed)
		require.ErrorIs(t, l.congestion("nonesuch", nil), ErrAbsent)
		require.NoError(t, l.congestion("bbr", []string{"bbr"}))
	})
	require.NoError(t, os.WriteFile(filepath.Join(folder, "modules.builtin"), []byte("kernel/net/sched/sch-one.ko\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "modules.dep"),
		[]byte("kernel/net/sched/sch_two.ko.xz: kernel/lib/x.ko.xz\nkernel/net/ipv4/tcp_three.ko:\n"), 0o600))
	t.Run("lists", func(t *testing.T) {
		l := &traffic{folders: []string{"/nonexistent", folder}}
		require.NoError(t, l.qdisc("one")())
		require.NoError(t, l.qdisc("two")())
		require.NoError(t, l.congestion("three", nil))
		require.ErrorIs(t, l.qdisc("nonesuch")(), ErrAbsent)
	})
}
