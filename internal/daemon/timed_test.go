package daemon

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
	"github.com/netnice/netnice/internal/enforce/enforcetest"
	"github.com/netnice/netnice/internal/identity"
	"github.com/netnice/netnice/internal/testutil"
)

func (h *harness) setFor(subject string, w api.Wish, d time.Duration) (api.SetResponse, error) {
	s, err := api.ParseSubject(subject)
	require.NoError(h.t, err)
	return h.Set(context.Background(), root, api.SetRequest{Subject: s, Wish: w, ForNS: uint64(d)})
}

func upLapse(s enforce.NodeSpec) enforce.Lapse {
	return s.Ceilings[enforce.OwnerAdmin][enforce.Up].Lapse
}

// A limit for a time comes before another one, which holds again when the time is over. The kernel side knows both.
func TestLimitForATime(t *testing.T) {
	fake := &enforcetest.Kernel{}
	h := start(t, fake, testOptions(t, fake))
	subject := pidSubject(sleeper(t))
	id := h.mustSet(root, subject, up(5e6)).ID
	spec := func() enforce.NodeSpec { s, _ := fake.Spec(id); return s }

	answer, err := h.setFor(subject, up(1e6), time.Hour)
	require.NoError(t, err)
	require.Len(t, answer.Node.Limits, 1)
	require.InDelta(t, time.Hour, answer.Node.Limits[0].LeftNS, float64(10*time.Second))
	require.EqualValues(t, 5e6, answer.Node.Limits[0].ThenBytesPerSec)
	require.EqualValues(t, 1e6, adminUp(spec()))
	require.EqualValues(t, 5e6, upLapse(spec()).BytesPerSec)
	require.InDelta(t, identity.BootTimeNS()+uint64(time.Hour), upLapse(spec()).BoottimeNS, float64(10*time.Second))

	// Another limit for a time replaces it, and does not count as what holds afterwards.
	_, err = h.setFor(subject, up(2e6), time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 5e6, upLapse(spec()).BytesPerSec)
	h.eventually("its time is over", func() bool { return adminUp(spec()) == 5e6 && upLapse(spec()) == enforce.Lapse{} })

	// A limit without a time ends one that it replaces, and no other.
	_, err = h.setFor(subject, api.Wish{UpBytesPerSec: ptr[uint64](1e6), DownBytesPerSec: ptr[uint64](3e6)}, time.Hour)
	require.NoError(t, err)
	h.mustSet(root, subject, up(4e6))
	require.EqualValues(t, 4e6, adminUp(spec()))
	require.Zero(t, upLapse(spec()))
	require.NotZero(t, spec().Ceilings[enforce.OwnerAdmin][enforce.Down].Lapse)
	_, err = h.remove(root, subject)
	require.NoError(t, err)
	require.True(t, h.gone(id)(), "unset lifts both")

	for _, w := range []api.Wish{{}, up(0), {Weight: new(uint32)}, {UpBytesPerSec: ptr[uint64](1), MinBytesPerSec: ptr[uint64](1)}} {
		_, err = h.setFor(subject, w, time.Hour)
		require.Error(t, err)
	}
	_, err = h.setFor(subject, up(1e6), time.Millisecond)
	require.ErrorContains(t, err, "want 1s")
	_, err = h.setFor("to:192.0.2.0/24/each", up(1e6), time.Hour)
	require.Equal(t, "netnice set to:192.0.2.0/24/each --up 1MB/s", testutil.RequireFault(t, api.CodeBadRequest, err).Hint)
}

// Without another limit the subject is free afterwards, also if a daemon was started again meanwhile, or the machine.
func TestLimitForATimeOverARestart(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	const user = "user:1999000700"
	answer, err := h.setFor(user, up(1e6), time.Hour)
	require.NoError(t, err)
	id := answer.Node.ID
	before, _ := fake.Spec(id)
	calls := fake.Calls("SetNode")
	require.NoError(t, h.stop())

	h = start(t, fake, opts)
	time.Sleep(5 * opts.Tick)
	after, there := fake.Spec(id)
	require.True(t, there)
	require.Equal(t, upLapse(before), upLapse(after))
	require.Equal(t, calls, fake.Calls("SetNode"), "the kernel side has it")
	require.NoError(t, h.stop())

	// Without a file, the kernel side still knows the end.
	require.NoError(t, os.Remove(h.file.Path()))
	h = start(t, fake, opts)
	time.Sleep(5 * opts.Tick)
	after, there = fake.Spec(id)
	require.True(t, there)
	require.Equal(t, upLapse(before), upLapse(after))
	require.NoError(t, h.stop())

	// After a reboot the kernel side has nothing, and the boot time begins again.
	rebooted := &enforcetest.Kernel{}
	opts.OpenKernel = rebooted.Open
	data, err := os.ReadFile(h.file.Path())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file.Path(), []byte(strings.Replace(string(data), h.boot, "another", 1)), 0o600))
	h = start(t, rebooted, opts)
	specs, err := rebooted.Nodes()
	require.NoError(t, err)
	require.Len(t, specs, 1)
	require.InDelta(t, identity.BootTimeNS()+uint64(time.Hour), upLapse(specs[0]).BoottimeNS, float64(time.Minute))
	_, err = h.setFor(user, up(1e6), time.Second)
	require.NoError(t, err)
	h.eventually("its time is over", func() bool { s, _ := rebooted.Nodes(); return len(s) == 0 })
}
