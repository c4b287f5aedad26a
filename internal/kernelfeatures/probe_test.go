package kernelfeatures

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// requirePrivileged skips a test that needs root, unless that is forbidden.
func requirePrivileged(t *testing.T) {
	t.Helper()
	f := &Features{}
	probeCaller(f, os.Geteuid(), readCapabilities)
	if f.CapBPF.Have && f.CapNetAdmin.Have && f.CapSysAdmin.Have {
		return
	}
	if os.Getenv("NETNICE_MUST_RUN_PRIVILEGED") == "1" {
		t.Fatal("needs root, and NETNICE_MUST_RUN_PRIVILEGED=1 forbids to skip")
	}
	t.Skip("needs root")
}

func TestProbeThisKernel(t *testing.T) {
	requirePrivileged(t)
	start := time.Now()
	f := Probe(t.Context())
	took := time.Since(start)
	for _, n := range f.List() {
		t.Logf("%-20s %-5t %-5s %v", n.Name, n.Have, n.MinKernel, n.Err)
		require.Equal(t, n.Have, n.Err == nil, n.Name)
	}
	t.Logf("%s: bpffs %q, cgroup %q (%s), lockdown %q, unprivileged %q, congestion %v; took %s",
		f.Release, f.BPFFSPath, f.CgroupPath, f.CgroupLayout, f.Lockdown, f.UnprivilegedBPF, f.Congestion, took)
	if os.Getenv("NETNICE_VM") == "" { // an emulated kernel takes longer
		// 0.4 s at rest; 1.9 s were seen beside the race detector's compiler.
		require.Less(t, took, 5*time.Second)
	}
	// Every kernel on which the tests can run has these features.
	for _, must := range []Feature{f.Root, f.CapBPF, f.BPF, f.SockOps, f.CgroupSKB, f.LRUHash} {
		require.NoError(t, must.Err)
	}
}

// Network namespaces other than the first have no setting for the compiler.
func TestCompiledInAnotherNamespace(t *testing.T) {
	requirePrivileged(t)
	here := Probe(t.Context()).JIT
	require.False(t, here.Unknown(), here.Err)
	there := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			there <- err
			return
		}
		f := &Features{}
		probeCaller(f, os.Geteuid(), readCapabilities)
		there <- newProber(f).compiled()
	}()
	if err := <-there; here.Have {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, ErrAbsent)
	}
}

func TestProbeLeavesNothing(t *testing.T) {
	requirePrivileged(t)
	Probe(t.Context()) // anything that the kernel keeps for its own use is there now
	before := traces(t)
	f := Probe(t.Context())
	require.NotEmpty(t, f.Release)
	// The kernel frees programs and namespaces a moment after their last use.
	require.Eventually(t, func() bool { return reflect.DeepEqual(before, traces(t)) }, 5*time.Second, 50*time.Millisecond,
		"before %v, after %v", before, traces(t))
}

// traces lists what a probe could leave behind: this process's open files,
// netnice_probe programs in the kernel, loaded modules, mounts.
func traces(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	out["files"] = len(files)
	programs := 0
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if info, err := p.Info(); err == nil && info.Name == "netnice_probe" {
			programs++
		}
		require.NoError(t, p.Close())
	}
	out["programs"] = programs
	modules, err := filepath.Glob("/sys/module/*")
	require.NoError(t, err)
	out["modules"] = len(modules)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	out["mounts"] = string(mounts)
	return out
}

func TestProbeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := Probe(ctx)
	require.True(t, f.SockOps.Unknown())
	require.ErrorIs(t, f.SockOps.Err, context.Canceled)
	require.Equal(t, "4.13", f.SockOps.MinKernel, "known without trying")
}

// Without privileges nothing that needs BPF is tried, and the answer is
// "unknown", never "absent".
func TestUnprivilegedIsUnknown(t *testing.T) {
	f := &Features{}
	probeCaller(f, 1000, func() (capabilities, error) { return capabilities{}, nil })
	require.ErrorIs(t, f.Root.Err, ErrAbsent)
	require.ErrorIs(t, f.CapBPF.Err, ErrAbsent)
	p := newProber(f)
	for _, try := range []func() error{p.mapType(ebpf.Hash), p.programType(ebpf.SockOps), p.tracepoint("sched_process_fork"), p.fentryAttached, p.tcx} {
		require.ErrorIs(t, try(), ErrUnknown)
	}
}

func TestCapabilities(t *testing.T) {
	f := &Features{}
	bit := func(bits ...uint) func() (capabilities, error) {
		var c capabilities
		for _, b := range bits {
			c[b/32].Effective |= 1 << (b % 32)
		}
		return func() (capabilities, error) { return c, nil }
	}
	probeCaller(f, 0, bit(39, 12)) // CAP_BPF, CAP_NET_ADMIN
	require.True(t, f.Root.Have)
	require.True(t, f.CapBPF.Have)
	require.True(t, f.CapNetAdmin.Have)
	require.False(t, f.CapPerfmon.Have)
	require.False(t, f.CapSysAdmin.Have)

	probeCaller(f, 0, bit(21)) // CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON
	require.True(t, f.CapBPF.Have)
	require.True(t, f.CapPerfmon.Have)
	require.False(t, f.CapNetAdmin.Have)

	probeCaller(f, 0, func() (capabilities, error) { return capabilities{}, ErrUnknown })
	require.True(t, f.CapBPF.Unknown())
}

func TestListNamesEveryFeatureOnce(t *testing.T) {
	f := &Features{}
	v := reflect.ValueOf(f).Elem()
	fields := map[string]bool{}
	for i := range v.NumField() {
		if v.Field(i).Type() == reflect.TypeFor[Feature]() {
			name := v.Type().Field(i).Name
			fields[name] = true
			// A distinct mark shows that the list takes the field of that name.
			v.Field(i).Set(reflect.ValueOf(Feature{Err: errors.New(name)}))
		}
	}
	for _, n := range f.List() {
		require.True(t, fields[n.Name], "%s is listed twice, or no field", n.Name)
		delete(fields, n.Name)
		require.EqualError(t, n.Err, n.Name)
		require.NotEmpty(t, n.Title)
	}
	require.Empty(t, fields, "not listed")
}
