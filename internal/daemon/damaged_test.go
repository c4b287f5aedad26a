package daemon

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/enforce/enforcetest"
)

// The next daemon of the same boot notices that a state was cut, between two records or anywhere. It brings nothing
// back: neither the lifted limit nor an earlier value of the other one.
func TestCutState(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := withLimits(t, opts, fake)
	before := inForce(t, fake)
	require.NoError(t, h.stop())
	path := h.file.Path()
	text := must(os.ReadFile(path))
	cuts := []int{0, 1, len(text) - 1}
	for at, b := range text {
		if b == '\n' && at+1 < len(text) {
			cuts = append(cuts, at+1) // the end of a record
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		cuts = append(cuts, random.IntN(len(text)))
	}
	for _, cut := range cuts {
		require.NoError(t, os.WriteFile(path, text[:cut], 0o600))
		h := start(t, fake, opts)
		require.Equal(t, before, inForce(t, fake), "cut at %d", cut)
		kept := Damaged(opts.StateDir)
		require.Len(t, kept, 1, "cut at %d", cut)
		require.Equal(t, string(text[:cut]), string(must(os.ReadFile(kept[0]))))
		status, err := h.Status(context.Background())
		require.NoError(t, err)
		require.Len(t, status.Problems, 1)
		require.Contains(t, status.Problems[0].Message, kept[0])
		h.written()
		require.NoError(t, h.stop())
		require.NoError(t, os.Remove(kept[0]))
		require.Equal(t, before, inForce(t, fake), "cut at %d, and by the daemon after that", cut)
	}
}

// After another boot only the undamaged records are left: the daemon sets them, and reports the damage.
func TestCutStateAfterBoot(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := withLimits(t, opts, fake)
	require.NoError(t, h.stop())
	path := h.file.Path()
	lines := bytes.SplitAfter(must(os.ReadFile(path)), []byte("\n"))
	lines[0] = bytes.Replace(lines[0], []byte(h.boot), []byte("another"), 1)
	require.NoError(t, os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600)) // the host, and 4242 with its first value
	fake = &enforcetest.Kernel{}
	opts.OpenKernel = fake.Open
	h = start(t, fake, opts)
	require.Len(t, inForce(t, fake), 2)
	status, err := h.Status(context.Background())
	require.NoError(t, err)
	require.Len(t, status.Problems, 1)
	require.Contains(t, status.Problems[0].Message, "it was cut")
	require.Len(t, Damaged(opts.StateDir), 1)
}

// Only the file says which destination a limit is for; the limit in force says its rate.
func TestCutStateOfDestination(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	h.mustSet(root, "to:192.0.2.0/24", up(1e6))
	h.mustSet(root, "to:192.0.2.0/24", up(2e6))
	before := inForce(t, fake)
	require.NoError(t, h.stop())
	path := h.file.Path()
	lines := bytes.SplitAfter(must(os.ReadFile(path)), []byte("\n"))
	require.NoError(t, os.WriteFile(path, bytes.Join(lines[:2], nil), 0o600))
	h = start(t, fake, opts)
	require.Equal(t, before, inForce(t, fake))
	nodes, err := h.nodesFor("to:192.0.2.0/24")
	require.NoError(t, err)
	require.EqualValues(t, 2e6, nodes[0].Limits[0].BytesPerSec)
	require.NoError(t, h.stop())

	// Without any of its records the limit ends, and the daemon reports that.
	lines = bytes.SplitAfter(must(os.ReadFile(path)), []byte("\n"))
	require.NoError(t, os.WriteFile(path, lines[0], 0o600))
	h = start(t, fake, opts)
	require.Empty(t, inForce(t, fake))
	status, err := h.Status(context.Background())
	require.NoError(t, err)
	require.Len(t, status.Problems, 2, "the former file is kept as well")
	require.Contains(t, status.Problems[0].Message+status.Problems[1].Message, "1 limits on parts of the traffic")
}

// The machine-wide settings do not make a record look older than the limits in force.
func TestCutStateWithTheMeterOff(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := start(t, fake, opts)
	since := h.mustSet(root, "user:4242", total(5e6)).Since
	h.mustSet(root, "user:4243", up(1e6))
	h.meter(false)
	before := inForce(t, fake)
	require.NoError(t, h.stop())
	text := must(os.ReadFile(h.file.Path()))
	require.NoError(t, os.WriteFile(h.file.Path(), text[:len(text)-1], 0o600))
	h = start(t, fake, opts)
	require.Equal(t, before, inForce(t, fake))
	nodes, err := h.nodesFor("user:4242")
	require.NoError(t, err)
	require.True(t, since.Equal(nodes[0].Since), "its record is kept")
}

// The pins were removed while no daemon ran: the file has the limits, and the daemon sets them again.
func TestPinsRemoved(t *testing.T) {
	fake := &enforcetest.Kernel{}
	opts := testOptions(t, fake)
	h := withLimits(t, opts, fake)
	before := inForce(t, fake)
	require.NoError(t, h.stop())
	fake = &enforcetest.Kernel{}
	opts.OpenKernel = fake.Open
	start(t, fake, opts)
	require.Equal(t, before, inForce(t, fake))
}
