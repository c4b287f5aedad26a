package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/statefile"
	"github.com/netnice/netnice/internal/testutil"
)

func total(rate uint64) api.Wish { return api.Wish{TotalBytesPerSec: &rate} }

// meter switches the input meter of the whole machine.
func (h *harness) meter(on bool) api.System {
	h.t.Helper()
	answer, err := h.SetSystem(context.Background(), root, api.SystemRequest{InputMeter: &on})
	require.NoError(h.t, err)
	return answer
}

// metered reports whether received traffic of a node counts. It checks that the kernel and the list agree.
func (h *harness) metered(id uint32) bool {
	h.t.Helper()
	spec, ok := h.fake.Spec(id)
	require.True(h.t, ok)
	list, err := h.Nodes(context.Background(), root)
	require.NoError(h.t, err)
	for _, n := range list.Nodes {
		if n.ID == id {
			require.Equal(h.t, spec.MeterOff, n.MeterOff)
		}
	}
	return !spec.MeterOff
}

func (h *harness) statusMeterOff() bool {
	h.t.Helper()
	s, err := h.Status(context.Background())
	require.NoError(h.t, err)
	return s.InputMeterOff
}

// The switch of the whole machine overrides the settings of limits, at once and for later limits. With it on, each
// limit has its own setting.
func TestInputMeterOfTheMachine(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	yes, no := true, false
	asks, never := total(5e6), total(6e6)
	asks.InputMeter, never.InputMeter = &yes, &no
	counts := h.mustSet(root, "host", asks).ID
	not := h.mustSet(root, "user:4711", never).ID
	sends := h.mustSet(root, "user:4712", up(1e6)).ID
	require.True(t, h.metered(counts))
	require.False(t, h.metered(not))
	require.False(t, h.statusMeterOff())

	before := fake.Calls("SetNode")
	answer, err := h.SetSystem(context.Background(), root, api.SystemRequest{InputMeter: &no, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, api.System{Version: api.Version, Changed: true}, answer)
	require.Equal(t, before, fake.Calls("SetNode"), "nothing was changed")
	require.True(t, h.meter(false).Changed)
	require.Equal(t, before+2, fake.Calls("SetNode"), "what has no total is left alone")
	require.False(t, h.meter(false).Changed, "it is off already")
	require.False(t, h.metered(counts))
	require.False(t, h.metered(not))
	require.True(t, h.metered(sends))
	require.True(t, h.statusMeterOff())
	got, err := h.System(context.Background())
	require.NoError(t, err)
	require.False(t, got.InputMeter)

	// A limit that is set meanwhile does not win either, and the answer says so.
	later, err := h.set(root, "user:4713", asks)
	require.NoError(t, err)
	require.False(t, h.metered(later.Node.ID))
	require.True(t, later.Node.MeterOff)
	require.Len(t, later.Warnings, 1)
	require.Contains(t, later.Warnings[0], "sudo netnice system --input-meter=on")
	said, err := h.set(root, "user:4714", never)
	require.NoError(t, err)
	require.Empty(t, said.Warnings, "it does as it was told")
	// The kernel is in the desired state: a comparison sets nothing again.
	before = fake.Calls("SetNode")
	h.mu.Lock()
	h.compare(h.destinations.AssignAgain)
	h.mu.Unlock()
	require.Equal(t, before, fake.Calls("SetNode"))

	h.meter(true)
	require.True(t, h.metered(counts))
	require.False(t, h.metered(not))
	require.True(t, h.metered(later.Node.ID))
	require.NoFileExists(t, h.systemPath())
}

func TestInputMeterOfTheMachineRefuses(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	off := false
	_, err := h.SetSystem(context.Background(), auth.Actor{UID: 1000}, api.SystemRequest{InputMeter: &off})
	testutil.RequireCode(t, api.CodeDenied, err)
	_, err = h.SetSystem(context.Background(), root, api.SystemRequest{})
	testutil.RequireCode(t, api.CodeBadRequest, err)

	// An error leaves the kernel and the file unchanged.
	id := h.mustSet(root, "host", total(5e6)).ID
	fake.Fail("SetNode", errors.New("no memory"))
	_, err = h.SetSystem(context.Background(), root, api.SystemRequest{InputMeter: &off})
	require.ErrorContains(t, err, "no memory")
	fake.Fail("SetNode", nil)
	require.True(t, h.metered(id))
	require.False(t, h.statusMeterOff())
	require.NoFileExists(t, h.systemPath())
}

// A file that cannot be written does not prevent the change: it holds, the answer reports the failure, and the file is
// written once that is possible.
func TestInputMeterOnAFullDisk(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	id := h.mustSet(root, "host", total(5e6)).ID
	require.NoError(t, os.Mkdir(h.systemPath(), 0o755)) // where the file would be
	answer := h.meter(false)
	require.Len(t, answer.Warnings, 1)
	require.Contains(t, answer.Warnings[0], "may be lost with a restart")
	require.False(t, h.metered(id))
	require.True(t, h.statusMeterOff())
	status, err := h.Status(context.Background())
	require.NoError(t, err)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0].Message, h.systemPath())
	require.NoError(t, os.Remove(h.systemPath()))
	h.eventually("it is written", func() bool {
		info, err := os.Stat(h.systemPath())
		return err == nil && info.Mode().IsRegular()
	})
	require.NoError(t, h.stop())
	h = start(t, fake, h.opts)
	require.True(t, h.statusMeterOff())
	require.False(t, h.metered(id))
}

// The setting stays when a daemon leaves, whether limits are in force or not. It goes with netnice down.
func TestInputMeterOutlivesTheDaemon(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	id := h.mustSet(root, "host", total(5e6)).ID
	h.meter(false)
	require.NoError(t, h.stop())
	require.NoError(t, os.Remove(h.file.Path())) // then all limits in force count as the administrator's
	h = start(t, fake, h.opts)
	require.False(t, h.metered(id))
	require.True(t, h.statusMeterOff())
	h.meter(true)
	require.True(t, h.metered(id), "that it did not count was nobody's wish")
	h.meter(false)

	require.NoError(t, h.Down(context.Background(), root))
	require.NoError(t, h.stop())
	require.NoFileExists(t, h.systemPath())

	opts := testOptions(t, fake)
	opts.OnDemand = true
	h = start(t, fake, opts)
	h.meter(false)
	require.NoError(t, h.wait(), "nothing is limited")
	require.True(t, fake.IsDown())
	h = start(t, fake, opts)
	require.True(t, h.statusMeterOff())
}

// A file of a newer netnice is refused, and a damaged file is kept under another name.
func TestInputMeterReadsNoOtherFile(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	path := filepath.Join(opts.StateDir, systemName)
	require.NoError(t, os.MkdirAll(opts.StateDir, 0o755))
	require.NoError(t, os.WriteFile(path, []byte(`{"version":2}`), 0o600))
	err := Run(context.Background(), opts)
	require.ErrorContains(t, err, "its version is 2")
	require.ErrorContains(t, err, path)
	require.False(t, fake.IsOpen(), "and what is in force stays")

	require.NoError(t, os.WriteFile(path, []byte(`{"version":1,"meter":3}`), 0o600))
	h := start(t, fake, opts)
	require.False(t, h.statusMeterOff())
	status, err := h.Status(context.Background())
	require.NoError(t, err)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0].Message, systemName+statefile.DamagedSuffix)
	require.Contains(t, status.Problems[0].Message, "for the whole machine")
	require.NoFileExists(t, path)
}

// A preallocated node for an address has the setting, too.
func TestInputMeterOfNodesInStore(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	h.setEach(root, "to:any/each", total(5e6))
	stored := func(off bool) func() bool {
		return func() bool {
			specs, err := fake.Nodes()
			if err != nil {
				return false
			}
			n := 0
			for _, spec := range specs {
				if spec.Store != 0 && spec.MeterOff == off {
					n++
				}
			}
			return n == enforce.MostStored
		}
	}
	require.Eventually(t, stored(false), soon, poll)
	h.meter(false)
	require.Eventually(t, stored(true), soon, poll)
}
