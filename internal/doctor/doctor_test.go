package doctor

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/kernelfeatures"
)

type features = kernelfeatures.Features

// complete returns the features of a machine that lacks nothing.
func complete() *features {
	f := &features{
		Release: "6.18.1", Arch: "amd64",
		BPFFSPath: "/sys/fs/bpf", CgroupPath: "/sys/fs/cgroup", CgroupLayout: kernelfeatures.CgroupLayoutV2,
		Lockdown: "none", UnprivilegedBPF: "2", Congestion: []string{"cubic", "bbr"},
		CPULayout: kernelfeatures.CgroupLayoutV2, CPUPath: "/sys/fs/cgroup",
	}
	setAll(f, kernelfeatures.Feature{Have: true})
	return f
}

// setAll sets the result of the probe of every feature.
func setAll(f *features, result kernelfeatures.Feature) {
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[kernelfeatures.Feature]() {
			v.Field(i).Set(reflect.ValueOf(result))
		}
	}
}

func absent(since string) kernelfeatures.Feature {
	return kernelfeatures.Feature{Err: fmt.Errorf("%w: tried", kernelfeatures.ErrAbsent), MinKernel: since}
}

func notTried() kernelfeatures.Feature {
	return kernelfeatures.Feature{Err: fmt.Errorf("%w: needs root", kernelfeatures.ErrUnknown)}
}

func TestACompleteMachineIsOKAndSilent(t *testing.T) {
	r := Examine(complete())
	require.Equal(t, api.Version, r.Version)
	require.Equal(t, "6.18.1", r.Kernel)
	require.Len(t, r.Checks, len(checks()))
	for _, c := range r.Checks {
		require.Equal(t, OK, c.State, c.Name)
		require.NotEmpty(t, c.Found, c.Name)
		require.Empty(t, c.Means+c.Remedy, c.Name)
	}
}

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name                 string
		change               func(*features)
		check, state         string
		found, means, remedy string // parts of the text
	}{
		{
			"an ordinary user", func(f *features) {
				f.Root, f.CapBPF, f.CapNetAdmin, f.CapPerfmon, f.CapSysAdmin = absent(""), absent(""), absent(""), absent(""), absent("")
			},
			"privileges", Degraded, "not root", "running daemon serves you", "sudo netnice doctor",
		},
		{
			"root in a container", func(f *features) { f.CapBPF, f.CapSysAdmin = absent(""), absent("") },
			"privileges", Missing, "CAP_BPF, CAP_SYS_ADMIN", "cannot load", "--privileged",
		},
		{
			"a service with capabilities", func(f *features) { f.Root = absent("") },
			"privileges", OK, "not root, but", "", "",
		},
		{
			"no BTF on a new kernel", func(f *features) { f.BTF = absent("4.18") },
			"kernel types", Missing, "BTF", "do not load", "stock kernel",
		},
		{
			"no BTF on an old kernel", func(f *features) { f.BTF, f.Release = absent("4.18"), "4.9.0-x" },
			"kernel types", Missing, "BTF", "do not load", "Linux 4.18 or newer",
		},
		{
			"lockdown", func(f *features) { f.Lockdown = "confidentiality" },
			"kernel programs", Missing, "lockdown: confidentiality", "whose a socket is", "lockdown=integrity",
		},
		{
			"lockdown that cannot be read", func(f *features) { f.Lockdown, f.ReadKernel = "", absent("") },
			"kernel programs", Missing, "lockdown: unknown", "whose a socket is", "lockdown=integrity",
		},
		{
			"bpf refused", func(f *features) { f.BPF = kernelfeatures.Feature{Err: unix.EPERM} },
			"kernel programs", Missing, "operation not permitted", "cannot load", "stock kernel",
		},
		{
			"interpreter", func(f *features) { f.JIT = absent("") },
			"kernel programs", Degraded, "interpreted", "several times", "sysctl -w net.core.bpf_jit_enable=1",
		},
		{
			"no bpffs", func(f *features) { f.BPFFS, f.BPFFSPath = absent(""), "" },
			"bpf file system", Degraded, "not mounted", "itself when it starts as root", "mount -t bpf bpf /sys/fs/bpf",
		},
		{
			"bpffs elsewhere", func(f *features) { f.BPFFSPath = "/mnt" },
			"bpf file system", Degraded, "mounted at /mnt", "itself", "mount -t bpf bpf /sys/fs/bpf",
		},
		{
			"no bpffs and no right to mount", func(f *features) { f.BPFFS, f.CapSysAdmin = absent(""), absent("") },
			"bpf file system", Missing, "not mounted", "may not mount", "mount -t bpf",
		},
		{
			"bpffs unknown", func(f *features) { f.BPFFS = notTried() },
			"bpf file system", Degraded, "could not be looked for", "", "sudo",
		},
		{
			"hybrid", func(f *features) {
				f.CgroupLayout, f.CgroupPath = kernelfeatures.CgroupLayoutHybrid, "/sys/fs/cgroup/unified"
			},
			"cgroup v2", OK, "/sys/fs/cgroup/unified, beside v1", "", "",
		},
		{
			"v1 only", func(f *features) {
				f.CgroupV2, f.CgroupPath, f.CgroupLayout = absent("4.5"), "", kernelfeatures.CgroupLayoutV1
			},
			"cgroup v2", Missing, "only v1", "no other place", "systemd.unified_cgroup_hierarchy=1",
		},
		{
			"no cgroups", func(f *features) {
				f.CgroupV2, f.CgroupPath, f.CgroupLayout = absent("4.5"), "", kernelfeatures.CgroupLayoutNone
			},
			"cgroup v2", Missing, "no cgroup mounted", "no other place", "mount -t cgroup2 none /sys/fs/cgroup",
		},
		{
			"a container's process numbers", func(f *features) { f.HostPIDs = absent("") },
			"whole machine", Degraded, "process numbers", "would miss", "--pid=host",
		},
		{
			"a container's cgroup", func(f *features) { f.CgroupRoot = absent("") },
			"whole machine", Degraded, "/sys/fs/cgroup is not", "only the processes of this container", "--cgroupns=host",
		},
		{
			"no header options", func(f *features) { f.HeaderOptions, f.RingBuf, f.Release = absent("5.10"), absent("5.8"), "5.4.0-26" },
			"limits on sending", Missing, "sockops at each transmit, ring buffers", "cannot limit", "Linux 5.10 or newer",
		},
		{
			"fentry in place of the tracepoint", func(f *features) { f.SendTracepoint = absent("6.16") },
			"who sends", OK, "by fentry", "", "",
		},
		{
			"neither", func(f *features) {
				f.SendTracepoint, f.SendFentry = absent("6.16"), kernelfeatures.Feature{Err: unix.EPERM, MinKernel: "5.5"}
			},
			"who sends", Missing, "fentry: operation not permitted", "which process", "Linux 6.16",
		},
		{
			"tracepoint but no fentry", func(f *features) { f.SendFentry = kernelfeatures.Feature{Err: unix.EPERM} },
			"who sends", OK, "by tracepoint", "", "",
		},
		{
			"fentry for new connections", func(f *features) { f.TaskStorageSock = absent("6.16") },
			"new connections", OK, "by fentry at tcp_connect", "", "",
		},
		{
			"no way for new connections", func(f *features) {
				f.TaskStorageSock, f.ListenFentry = absent("6.16"), kernelfeatures.Feature{Err: unix.EPERM, MinKernel: "5.5"}
			},
			"new connections", Missing, "inet_csk_listen_start: operation not permitted", "whose a new connection is", "stock kernel",
		},
		{
			"no task storage", func(f *features) { f.TaskStorage, f.Release = absent("5.11"), "5.10.0-8-amd64" },
			"children", Missing, "values kept with processes", "escape", "Linux 5.11 or newer",
		},
		{
			"no iterators", func(f *features) { f.IterTCP, f.Release = absent("5.9"), "5.8.1" },
			"running programs", Missing, "iterator tcp", "only hold for programs that start after", "Linux 5.9 or newer",
		},
		{
			"callbacks cannot be switched on late", func(f *features) { f.CBFlags = absent("6.12") },
			"open connections", Degraded, "cannot switch", "fixed, equal parts", "6.12",
		},
		{
			"no own error codes", func(f *features) { f.SetRetval = absent("5.18") },
			"socket option", Degraded, "every refusal is EPERM", "operation not permitted", "5.18",
		},
		{
			"no setsockopt hook", func(f *features) { f.CgroupSockopt, f.Release = absent("5.3"), "5.2.0" },
			"socket option", Missing, "cgroup/setsockopt", "cannot load", "Linux 5.3 or newer",
		},
		{
			"no fq", func(f *features) { f.FQ = absent("") },
			"TCP", OK, "cubic, bbr; no fq (not needed)", "", "",
		},
		{
			"no list of congestion controls", func(f *features) { f.Congestion = nil },
			"TCP", OK, "unknown; fq is there", "", "",
		},
		{
			"no systemd", func(f *features) { f.Systemd = absent("") },
			"systemd", Degraded, "not running", "--unit", "",
		},
		{
			"systemd has the processors", func(*features) {},
			"shares of the processors", OK, "scopes of systemd's, in cgroup v2, at /sys/fs/cgroup; bursts; SCHED_DEADLINE", "", "",
		},
		{
			"groups of version 1", func(f *features) {
				f.Systemd, f.CPULayout, f.CPUPath = absent(""), kernelfeatures.CgroupLayoutV1, "/sys/fs/cgroup/cpu"
			},
			"shares of the processors", OK, "groups in cgroup v1, at /sys/fs/cgroup/cpu", "", "",
		},
		{
			"no CPU controller", func(f *features) { f.CPUController = absent("") },
			"shares of the processors", Degraded, "no mounted cgroup", "netnice power, exec", "/proc/cgroups",
		},
		{
			"no bursts", func(f *features) { f.CPUBurst, f.Release = absent("5.14"), "5.10.1" },
			"shares of the processors", Degraded, "not there: bursts", "an eighth less", "Linux 5.14 or newer",
		},
		{
			"no deadlines", func(f *features) { f.Deadline = absent("3.14") },
			"shares of the processors", Degraded, "not there: SCHED_DEADLINE", "as without it", "sched_rt_runtime_us",
		},
		{
			"no ceilings", func(f *features) { f.CPUQuota = absent("") },
			"shares of the processors", Degraded, "CONFIG_CFS_BANDWIDTH", "only priorities", "stock kernel",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := complete()
			c.change(f)
			seen := false
			for _, got := range Examine(f).Checks {
				if got.Name != c.check {
					continue
				}
				seen = true
				require.Equal(t, c.state, got.State, got)
				for _, pair := range [][2]string{{got.Found, c.found}, {got.Means, c.means}, {got.Remedy, c.remedy}} {
					require.Contains(t, pair[0], pair[1])
					if pair[1] == "" {
						require.Empty(t, pair[0])
					}
				}
			}
			require.True(t, seen, "no check %q", c.check)
		})
	}
}

// A part that could not be looked for is never called missing.
func TestUnknownIsNotMissing(t *testing.T) {
	f := complete()
	setAll(f, notTried())
	for _, c := range Examine(f).Checks {
		require.NotEqual(t, Missing, c.State, c.Name)
	}
}

// Whether programs are compiled may be unknown; then doctor does not say that they are interpreted, nor that they are not.
func TestUnknownCompiler(t *testing.T) {
	f := complete()
	f.JIT = notTried()
	c := programs(f)
	require.Equal(t, OK, c.State)
	require.Equal(t, "the bpf system call works", c.Found)
}

func TestReleases(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"6.12", "6.2", true},
		{"6.2", "6.12", false},
		{"6.1", "6.1.0-56-amd64", false},
		{"5.18", "5.15.0-91-generic", true},
		{"5.3", "", true},
		{"", "5.3", false},
		{"6.16", "6.16-rc1", false},
		{"10.0", "9.9", true},
	} {
		require.Equal(t, c.want, newer(c.a, c.b), "%s newer than %s", c.a, c.b)
	}
}

func TestRender(t *testing.T) {
	f := complete()
	f.CBFlags = absent("6.12")
	f.CgroupV2, f.CgroupLayout = absent("4.5"), kernelfeatures.CgroupLayoutV1
	r := Examine(f)
	r.Checks = []api.Check{r.Checks[0], r.Checks[4]}
	var out strings.Builder
	require.NoError(t, Render(&out, r, Look{}))
	require.Equal(t, `Linux 6.18.1
ok        privileges  root, with all capabilities that netnice needs
missing   cgroup v2   only v1 is mounted
                      netnice attaches its programs to the root of cgroup v2 and has no other place.
                      -> mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified
                         or for good: add systemd.unified_cgroup_hierarchy=1 to the kernel's command line and reboot
netnice does not work here yet: 1 missing.
`, out.String())

	for want, states := range map[string][]string{
		"netnice works here.\n":                      {OK},
		"netnice works here, with 1 restriction.\n":  {Degraded},
		"netnice works here, with 2 restrictions.\n": {Degraded, OK, Degraded},
	} {
		r := api.Report{}
		for _, s := range states {
			r.Checks = append(r.Checks, api.Check{State: s})
		}
		out.Reset()
		require.NoError(t, Render(&out, r, Look{}))
		require.True(t, strings.HasSuffix(out.String(), want), out.String())
	}

	out.Reset()
	require.NoError(t, Render(&out, api.Report{Kernel: "6.1", Checks: []api.Check{unknown("a"), unknown("b"), {Name: "c", State: OK}}}, Look{}))
	require.Equal(t, `Linux 6.1
degraded  a  could not be looked for without root
             -> sudo netnice doctor
degraded  b  could not be looked for without root
ok        c  
Whether netnice works here only root can find out: 2 of 3 checks could not be made.
`, out.String())

	broken := errors.New("broken pipe")
	require.ErrorIs(t, Render(writer(func([]byte) (int, error) { return 0, broken }), r, Look{}), broken)
}

// Long texts are broken to the width of the terminal, and states may be coloured.
func TestRenderWithinAWidth(t *testing.T) {
	r := api.Report{Kernel: "6.1", Checks: []api.Check{
		{Name: "cgroup v2", State: Missing, Found: "only v1 is mounted", Means: "netnice attaches its programs to the root of cgroup v2.", Remedy: "mkdir -p /sys/fs/cgroup/unified and mount it there\nor for good"},
	}}
	var out strings.Builder
	require.NoError(t, Render(&out, r, Look{Width: 60, State: func(state, padded string) string {
		require.Equal(t, Missing, state)
		return "\x1b[31m" + padded + "\x1b[m"
	}}))
	require.Equal(t, "Linux 6.1\n"+
		"\x1b[31mmissing \x1b[m  cgroup v2  only v1 is mounted\n"+
		"                     netnice attaches its programs to the\n"+
		"                     root of cgroup v2.\n"+
		"                     -> mkdir -p /sys/fs/cgroup/unified and\n"+
		"                        mount it there\n"+
		"                        or for good\n"+
		"netnice does not work here yet: 1 missing.\n", out.String())
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestThisMachine examines this machine; a report for root may have no unknown part.
func TestThisMachine(t *testing.T) {
	r := Run(t.Context())
	var out strings.Builder
	require.NoError(t, Render(&out, r, Look{}))
	t.Log("\n" + out.String())
	require.NotEmpty(t, r.Kernel)
	privileged := r.Checks[0].State == OK
	if !privileged && os.Getenv("NETNICE_MUST_RUN_PRIVILEGED") == "1" {
		t.Fatal("needs root, and NETNICE_MUST_RUN_PRIVILEGED=1 forbids to skip")
	}
	for _, c := range r.Checks {
		require.Contains(t, []string{OK, Degraded, Missing}, c.State)
		if privileged {
			require.NotContains(t, c.Found, "could not be looked for", c.Name)
		}
	}
}

func TestPacketSocketsAreNamed(t *testing.T) {
	f := complete()
	f.PacketSockets = []string{"a (1)", "b (2)", "c (3)", "d (4)", "e (5)", "f (6)", "g (7)"}
	c := packetSockets(f)
	require.Equal(t, OK, c.State)
	require.Equal(t, "a (1), b (2), c (3), d (4), e (5) and 2 more", c.Found)
	require.Contains(t, c.Remedy, "CAP_NET_RAW")
	f.PacketSocketsErr = kernelfeatures.ErrUnknown
	require.Equal(t, notLooked, packetSockets(f).Found)
}
