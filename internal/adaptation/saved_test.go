package adaptation

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/rules"
	"github.com/netnice/netnice/internal/units"
)

// Other daemons read the file, so its format stays.
func TestSavedFormat(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 11, 12, 0, time.UTC)
	how := settings{SharePPM: 500_000, TCP: true, Start: 3, Least: 1000, Most: 9000, ReflectorPort: 7007, BacklogNS: 200e6}
	s := Saved{
		Version: StateVersion,
		Adapted: []*entry{
			{Host: "far.example", Address: netip.MustParseAddr("2001:db8::7"), Netns: 7, settings: how, Since: at, Area: "any"},
			{Host: "192.0.2.7", Address: netip.MustParseAddr("192.0.2.7"), settings: settings{SharePPM: 1, Least: 2, BacklogNS: 3}, Since: at},
		},
		Areas: []*area{{Host: "any", Netns: 7, settings: how, Since: at, Rule: &rules.Origin{Name: "paths", File: "/etc/netnice/netnice.toml", Line: 9, Key: "k"}}},
	}
	text, err := json.Marshal(s)
	require.NoError(t, err)
	const parameters = `"share_ppm":500000,"tcp":true,"start_bytes_per_sec":3,"least_bytes_per_sec":1000,"most_bytes_per_sec":9000,"reflector_port":7007,"backlog_ns":200000000,"since":"2026-11-22T10:11:12Z"`
	require.Equal(t, `{"version":4,"adapted":[{"host":"far.example","address":"2001:db8::7","netns":7,`+parameters+`,"area":"any"},`+
		`{"host":"192.0.2.7","address":"192.0.2.7","share_ppm":1,"least_bytes_per_sec":2,"backlog_ns":3,"since":"2026-11-22T10:11:12Z"}],`+
		`"areas":[{"host":"any","netns":7,`+parameters+`,"rule":{"name":"paths","file":"/etc/netnice/netnice.toml","line":9,"key":"k"}}]}`, string(text))
}

// Whatever a state file has, the parameters of what Check accepts are in range.
func FuzzSaved(f *testing.F) {
	for _, seed := range []string{
		`{"version":3,"adapted":[{"host":"video.example.com","address":"192.0.2.7","share_ppm":500000,"least_bytes_per_sec":1000,"since":"2026-11-22T10:11:12Z"}],"areas":[{"host":"any,!10.0.0.0/8","share_ppm":300000,"tcp":true,"least_bytes_per_sec":1000,"most_bytes_per_sec":9000,"since":"2026-11-22T10:11:12Z","rule":{"name":"paths","file":"/etc/netnice/netnice.toml","line":9,"key":"k"}}]}`,
		`{"version":1,"adapted":[{"host":"2001:db8::7","address":"2001:db8::7","netns":4026532301,"share_ppm":100000,"start_bytes_per_sec":18446744073709551615,"least_bytes_per_sec":1,"reflector_port":7007,"since":"2026-11-22T10:11:12Z","area":"any"}]}`,
		`{"version":3,"adapted":[null],"areas":[null]}`,
		`{"version":3,"areas":[{"host":"300.1.2.3/40","share_ppm":1}]}`,
		`{"version":4,"adapted":[{"host":"192.0.2.7","address":"192.0.2.7","share_ppm":500000,"least_bytes_per_sec":1000,"backlog_ns":1,"since":"2026-11-22T10:11:12Z"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Saved
		if json.Unmarshal(data, &s) != nil || s.Check() != nil {
			return
		}
		for _, a := range s.Adapted {
			require.True(t, a.BacklogNS == 0 || a.BacklogNS >= leastBacklog && a.BacklogNS <= mostBacklog)
			require.Equal(t, api.KindTo, a.subject().Kind)
			require.True(t, a.SharePPM > 0 && a.SharePPM <= 1_000_000)
			require.LessOrEqual(t, slices.Max([]uint64{a.Start, a.Least, a.Most}), units.MaxRate)
		}
		for _, a := range s.Areas {
			a.api()
		}
	})
}
