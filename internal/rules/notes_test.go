package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A weight needs a limit around it. A rule with a limit that processes share may be that.
func TestWeightNotes(t *testing.T) {
	device := func(name string) func() string { return func() string { return name } }
	weight := func(w uint32) *Rule {
		r := &Rule{Share: ShareAll}
		r.File, r.Line, r.Limits.Weight = "f", 3, w
		return r
	}
	shared := &Rule{Share: ShareAll}
	rate := uint64(1000)
	shared.Limits.UpBytesPerSec = &rate
	require.Empty(t, WeightNotes([]*Rule{weight(0), weight(100)}, device("eth0")), "the default is no request")
	require.Empty(t, WeightNotes([]*Rule{weight(50), shared}, device("eth0")))
	notes := WeightNotes([]*Rule{weight(50), weight(60)}, device("eth0"))
	require.Len(t, notes, 1)
	require.Equal(t, "f", notes[0].File)
	require.Contains(t, notes[0].Remedy, "netnice link eth0 --measure")
	require.Contains(t, WeightNotes([]*Rule{weight(50)}, device(""))[0].Remedy, "netnice link DEVICE --measure")
}
