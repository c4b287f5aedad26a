package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
)

func TestMarkPriorities(t *testing.T) {
	for text, want := range map[string]string{
		"power 4711 -20 --json":                 "power 4711 !-20 --json",
		"--socket s power 4711 -20":             "--socket s power 4711 !-20",
		"--units=bits power -3 -x":              "--units=bits power !-3 -x",
		"exec -20 make -j -8":                   "exec !-20 make -j -8",
		"--units bits exec -20 head -5":         "--units bits exec !-20 head -5",
		"exec 20 head -5":                       "exec 20 head -5",
		"exec --slots 1ms --strict -20 head -5": "exec --slots 1ms --strict !-20 head -5",
		"exec --slots=1ms 20 head -5":           "exec --slots=1ms 20 head -5",
		"power":                                 "power",
		"exec":                                  "exec",
		"run -- nice -5":                        "run -- nice -5",
		"-h":                                    "-h",
		"":                                      "",
	} {
		got := strings.Join(markPriorities(strings.Fields(text)), " ")
		require.Equal(t, want, strings.ReplaceAll(got, aPriority, "!"), text)
	}
}

func TestPowerText(t *testing.T) {
	app, _ := testApp()
	for want, p := range map[string]api.Power{
		"30% of a processor, guaranteed":                   {Power: 30, SliceNS: 6e6, PeriodNS: 20e6, Guaranteed: true},
		"30% of a processor at most":                       {Power: 30, SliceNS: 6e6, PeriodNS: 20e6},
		"priority -20":                                     {Power: -20},
		"priority -20, at most 10% of a processor":         {Power: -20, SliceNS: 4e6, PeriodNS: 40e6},
		"5 ms of the processors in each 20 ms, guaranteed": {Power: 25, SliceNS: 5e6, PeriodNS: 20e6, Reserved: true, Guaranteed: true},
		"25% of a processor for 50 MB/s, guaranteed":       {Power: 25, SliceNS: 5e6, PeriodNS: 20e6, Reserved: true, Guaranteed: true, Auto: &api.PowerAuto{RateBytesPerSec: 50e6}},
		"5 ms of the processors in each 20 ms at least, and a share of the rest, guaranteed": {Power: 25, SliceNS: 5e6, PeriodNS: 20e6, Reserved: true, Extra: true, Guaranteed: true},
		"30% of a processor in slots of 1 ms, guaranteed":                                    {Power: 30, SliceNS: 1e6, PeriodNS: 3333333, SlotNS: 1e6, Guaranteed: true},
		"30% of a processor by a deadline, guaranteed":                                       {Power: 30, SliceNS: 6e6, PeriodNS: 20e6, Strict: true, Deadline: true, Guaranteed: true},
	} {
		require.Equal(t, want, app.powerText(&p))
	}
}
