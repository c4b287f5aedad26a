package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/adaptation"
	"github.com/netnice/netnice/internal/cpu"
	"github.com/netnice/netnice/internal/cpushare"
	"github.com/netnice/netnice/internal/cpushare/cpusharetest"
	"github.com/netnice/netnice/internal/desired"
	"github.com/netnice/netnice/internal/desired/desiredtest"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/statefile"
	"github.com/netnice/netnice/internal/testutil"
	"github.com/netnice/netnice/internal/units"
)

// These tests cover the files that a daemon finds at its start: written by an earlier daemon, and possibly changed by a
// bad disk.

func TestRateOutOfRange(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	_, err := h.set(root, "host", up(units.MaxRate+1))
	testutil.RequireCode(t, api.CodeBadRequest, err)
	h.mustSet(root, "host", up(units.MaxRate))
}

// forgetDamaged removes the damaged files that daemons have kept aside: they keep a hundred at most in one second.
func forgetDamaged(t *testing.T, opts Options) {
	t.Helper()
	for _, path := range Damaged(opts.StateDir) {
		require.NoError(t, os.Remove(path))
	}
}

// fakeProc returns a procfs with one process, 4711, of a boot of its own.
func fakeProc(t testing.TB) string {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sys/kernel/random/boot_id": "boot\n",
		"sys/kernel/osrelease":      "6.1.0\n",
		"4711/stat":                 "4711 (rsync) S 1 4711 4711 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1000 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// startFuzz returns options for daemons in these tests: they find no processes of the machine, and make no look-ups.
func startFuzz(f testing.TB) Options {
	opts := testOptions(f, &enforcetest.Kernel{})
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Identity.Proc, opts.Identity.VarLib = fakeProc(f), f.TempDir()
	opts.LookupNames = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no names here") }
	opts.OpenProcessors = func(cpu.Scopes) (cpushare.Processors, error) { return cpusharetest.New(), nil }
	require.NoError(f, opts.fill())
	require.NoError(f, os.MkdirAll(opts.StateDir, 0o755))
	return opts
}

// openOnce starts a daemon, without its socket, and closes it again.
func openOnce(t *testing.T, opts Options) (*Daemon, *enforcetest.Kernel) {
	fake := &enforcetest.Kernel{}
	opts.OpenKernel = fake.Open
	forgetDamaged(t, opts)
	d, err := open(t.Context(), opts)
	require.NoError(t, err)
	d.stopWatching()
	require.NoError(t, d.kernel.Close())
	return d, fake
}

// sane checks that a command could have set the limit.
func sane(t *testing.T, w limit.Limit) {
	t.Helper()
	for _, rate := range []uint64{w.Up, w.Down, w.Total, w.Min, w.MinDown} {
		require.LessOrEqual(t, rate, units.MaxRate)
	}
	require.LessOrEqual(t, w.Weight, uint32(limit.MaxWeight))
	require.LessOrEqual(t, w.BurstNS, limit.MaxBurstNS)
	require.LessOrEqual(t, w.DSCP, uint8(64))
	if w.Reserve.SliceNS != 0 {
		require.LessOrEqual(t, w.Reserve.SliceNS, w.Reserve.PeriodNS)
		require.LessOrEqual(t, w.Reserve.PeriodNS, limit.MaxPeriodNS)
	}
}

// Any file is either a newer netnice's, or has limits that a command could have set, up to its damage. Each limit is on
// a subject of its node's kind. A daemon adopts these limits, and writes a file that the next daemon can read.
func FuzzState(f *testing.F) {
	lines := strings.SplitAfter(desiredtest.Whole, "\n")
	f.Add([]byte(desiredtest.Whole))
	f.Add([]byte(strings.Join(lines[:5], "")))
	f.Add([]byte(desiredtest.Whole + `{"next_id":7,"gone":`))
	for _, line := range lines[1:12] {
		f.Add([]byte(`{"version":9,"boot_id":"boot","next_id":5,"nodes":1}` + "\n" + line))
	}
	for _, node := range slices.Sorted(maps.Keys(desiredtest.Spoilt)) {
		f.Add(desiredtest.SpoiltText(node))
	}
	for _, version := range []string{"1", "2", "7", "0", "-1"} {
		f.Add([]byte(strings.Replace(desiredtest.Whole, `"version":9`, `"version":`+version, 1)))
	}
	f.Add([]byte(`{"version":1,"boot_id":"x","next_id":4,"nodes":[{"id":3,"subject":{"kind":"user","id":"4242"},"kind":5,"key":4242,"uid":4242,"name":"4242","admin":{"up_bytes_per_sec":5},"user":{},"since":"2026-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"version":99}`))
	former, err := desired.Parse([]byte(desiredtest.Whole), "boot")
	require.NoError(f, err)
	summed := desiredtest.Text(f, "boot", 22, former.Nodes...)
	f.Add(summed)
	f.Add(summed[:len(summed)-5])
	f.Add(bytes.Replace(summed, []byte(`"up_bytes_per_sec":25000000`), []byte(`"up_bytes_per_sec":35000000`), 1))
	f.Add([]byte("{\"version\":9}\n{\"node\":null,\"gone\":1}\n\x00\x00"))
	opts := startFuzz(f)
	kinds := map[api.Kind][]enforce.Kind{
		api.KindPID: {enforce.KindTree}, api.KindGroup: {enforce.KindTree}, api.KindRule: {enforce.KindTree, enforce.KindDestination},
		api.KindUser: {enforce.KindUser}, api.KindLink: {enforce.KindLink}, api.KindHost: {enforce.KindHost},
		api.KindCgroup: {enforce.KindCgroup}, api.KindUnit: {enforce.KindCgroup}, api.KindContainer: {enforce.KindCgroup},
		api.KindTo: {enforce.KindDestination},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := desired.Parse(data, "boot")
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, n := range s.Nodes {
			require.Contains(t, kinds[n.Subject.Kind], n.Kind)
			sane(t, n.Admin)
			sane(t, n.User)
			if n.Rules != nil {
				for _, o := range n.Rules.Owners {
					sane(t, o.Wish)
				}
			}
			nodeOf(n).spec()
		}
		text := desiredtest.Text(t, "boot", 22, s.Nodes...)
		again, err := desired.Parse(text, "boot")
		require.NoError(t, err)
		require.NoError(t, again.Damage)
		require.Equal(t, string(text), string(desiredtest.Text(t, "boot", 22, again.Nodes...)))

		require.NoError(t, os.WriteFile(filepath.Join(opts.StateDir, desired.FileName), data, 0o600))
		d, fake := openOnce(t, opts)
		specs, err := fake.Nodes()
		require.NoError(t, err)
		for _, spec := range specs {
			n := d.nodes.Get(spec.ID)
			require.NotNil(t, n)
			require.Equal(t, n.res.Kind, spec.Kind)
			require.Contains(t, kinds[n.res.Subject.Kind], spec.Kind)
			require.True(t, spec.Weight > 0 && spec.Weight <= limit.MaxWeight)
			for _, owner := range spec.Ceilings {
				for _, c := range owner {
					require.LessOrEqual(t, c.BytesPerSec, units.MaxRate)
				}
			}
		}
		written, err := desired.Load(opts.StateDir, "boot")
		require.NoError(t, err, "the next daemon does not start")
		require.NoError(t, written.Damage)
		require.Equal(t, s.Damage != nil, len(Damaged(opts.StateDir)) == 1, "a damaged file is kept")
		require.Len(t, written.Nodes, d.nodes.Len())
		for _, n := range written.Nodes {
			require.NotNil(t, d.nodes.Get(n.ID))
			want, err := json.Marshal(d.nodes.Get(n.ID).wanted())
			require.NoError(t, err)
			got, err := json.Marshal(n)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		}
	})
}

// requireWhole checks that the next daemon can start with such a file, or without one.
func requireWhole(t *testing.T, path string, newest int, content statefile.Content) {
	t.Helper()
	damage, err := statefile.ReadObject(path, newest, content)
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	require.NoError(t, damage)
}

// FuzzPowerState does the same for the file of CPU shares.
func FuzzPowerState(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"start_boottime_ns":10000000000,"uid":4242,"name":"make","wishes":[{"power":30,"slot_ns":1000000},{"power":-20}],"user_uid":4242,"group":{"dir":"/4711","enabled":true},"since":"2026-11-22T10:11:12Z","was":{"number":0,"nice":5}}]}`,
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"start_boottime_ns":10000000000,"uid":0,"name":"x","wishes":[{"period_ns":20000000,"slice_ns":5000000,"extra":true,"strict":true},{}],"group":{"dir":"/sys/fs/cgroup/system.slice/netnice-cpu-7.scope","unit":"netnice-cpu-7.scope","slice":"system.slice","origin":"/sys/fs/cgroup/system.slice/a.service"},"since":"2026-11-22T10:11:12Z"}]}`,
		`{"version":1,"boot_id":"boot","powers":[null]}`,
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"wishes":[{"slice_ns":5}]}]}`,
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"wishes":[{"power":500,"slot_ns":1}]}]}`,
		`{"version":2}`, `{"version":1}{}`,
	} {
		f.Add([]byte(seed))
	}
	opts := startFuzz(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var s cpushare.Saved
		damage, err := statefile.ParseObject(data, cpushare.StateVersion, &s)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, os.WriteFile(filepath.Join(opts.StateDir, cpushare.FileName), data, 0o600))
		d, _ := openOnce(t, opts)
		requireWhole(t, d.cpuSharePath(), cpushare.StateVersion, &cpushare.Saved{})
		require.Equal(t, damage != nil, len(Damaged(opts.StateDir)) == 1, "a damaged file is kept")
	})
}

// FuzzAdaptState does the same for the file of hosts whose paths are followed.
func FuzzAdaptState(f *testing.F) {
	for _, seed := range []string{
		`{"version":3,"adapted":[{"host":"video.example.com","address":"192.0.2.7","share_ppm":500000,"least_bytes_per_sec":1000,"since":"2026-11-22T10:11:12Z"}],"areas":[{"host":"any,!10.0.0.0/8","share_ppm":300000,"tcp":true,"least_bytes_per_sec":1000,"most_bytes_per_sec":9000,"since":"2026-11-22T10:11:12Z","rule":{"name":"paths","file":"/etc/netnice/netnice.toml","line":9,"key":"k"}}]}`,
		`{"version":1,"adapted":[{"host":"2001:db8::7","address":"2001:db8::7","netns":4026532301,"share_ppm":100000,"start_bytes_per_sec":18446744073709551615,"least_bytes_per_sec":1,"reflector_port":7007,"since":"2026-11-22T10:11:12Z","area":"any"}]}`,
		`{"version":3,"adapted":[null],"areas":[null]}`,
		`{"version":3,"adapted":[{"host":"x","address":""}]}`,
		`{"version":3,"areas":[{"host":"300.1.2.3/40","share_ppm":1}]}`,
		fmt.Sprintf("{\"version\":%d}", adaptation.StateVersion+1),
		`{"version":4,"adapted":[{"host":"192.0.2.7","address":"192.0.2.7","share_ppm":500000,"least_bytes_per_sec":1000,"backlog_ns":200000000,"since":"2026-11-22T10:11:12Z"}]}`,
		`{"version":4,"adapted":[{"host":"192.0.2.7","address":"192.0.2.7","share_ppm":500000,"least_bytes_per_sec":1000,"backlog_ns":1,"since":"2026-11-22T10:11:12Z"}]}`,
	} {
		f.Add([]byte(seed))
	}
	const limits = `{"version":9,"boot_id":"boot","next_id":5,"nodes":1}
{"node":{"id":1,"subject":{"kind":"to","id":"192.0.2.7/udp"},"kind":6,"key":7,"uid":0,"name":"","admin":{"up_bytes_per_sec":5000},"user":{},"since":"2026-11-22T10:11:12Z","to":{}}}
`
	opts := startFuzz(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var s adaptation.Saved
		damage, err := statefile.ParseObject(data, adaptation.StateVersion, &s)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, os.WriteFile(filepath.Join(opts.StateDir, desired.FileName), []byte(limits), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(opts.StateDir, adaptation.FileName), data, 0o600))
		d, _ := openOnce(t, opts)
		requireWhole(t, d.adaptationPath(), adaptation.StateVersion, &adaptation.Saved{})
		require.Equal(t, damage != nil, len(Damaged(opts.StateDir)) == 1, "a damaged file is kept")
	})
}
