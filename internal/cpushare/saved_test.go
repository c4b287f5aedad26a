package cpushare

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/cpu"
)

// Whatever a state file has, the shares of what Check accepts are in range.
func FuzzSaved(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"wishes":[{"power":30,"slot_ns":1000000},{"power":-20}]}]}`,
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"wishes":[{"period_ns":20000000,"slice_ns":5000000,"extra":true,"strict":true},{}]}]}`,
		`{"version":1,"boot_id":"boot","powers":[{"pid":4711,"wishes":[{"slice_ns":5}]}]}`,
		`{"version":1,"boot_id":"boot","powers":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Saved
		if json.Unmarshal(data, &s) != nil || s.Check() != nil {
			return
		}
		for _, p := range s.Powers {
			share := p.share()
			require.True(t, share.SliceNS == 0 || share.PeriodNS > 0)
			require.LessOrEqual(t, share.Weight, uint64(cpu.MostWeight))
			p.power()
		}
	})
}
