package verdict

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	file := []byte(`{"figures": [{"ours": {"with_over_without": {"median": 0.99}}}, {"ours": {"with_over_without": {"median": 0.82}}}]}`)
	list := Judge("e26-throughput", file)
	require.Len(t, list, 1)
	require.Equal(t, "miss", list[0].Word())
	require.Equal(t, "0.82 to 0.99", list[0].Ours())
	require.Equal(t, "at least 0.97", list[0].Wanted())
	require.Contains(t, Table(list), "| E26 | TCP with half of the link reserved over plain Linux | 0.72 | at least 0.97 | 0.82 to 0.99 | miss |")

	list[0].Because = "of this"
	require.Equal(t, "not reproduced", list[0].Word())
	require.Contains(t, Table(list), "of this")
	require.Equal(t, "not measured", Judge("e26-throughput", nil)[0].Word())
}

func TestFigures(t *testing.T) {
	for experiment, text := range map[string]string{
		"e18-slices":          `{"figure_4": [{"bursts": {"2": 19, "3": 1}, "between_their_beginnings_ms": {"mean": 50}}], "by_slice": [{"over_reserved": 1}]}`,
		"e20-hog":             `[{"hog_percent": 0, "over_without": 1}, {"hog_percent": 50, "over_without": 0.55}]`,
		"e19-reservations":    `{"phases": [{}, {}, {"mbit_per_sec": [{"mean": 0.18}, {"mean": 3.82}, {"mean": 6}], "wanted_mbit_per_sec": [0.18, 3.82, 6]}], "queue_of_four_ms": {"max": 9}}`,
		"e22-senders":         `[{"phase": "beside four hogs, --cpu auto", "mbit_per_sec": 400, "aim_mbit_per_sec": 400}, {"phase": "alone", "mbit_per_sec": 1, "aim_mbit_per_sec": 400}, {"phase": "Table 1 as printed, run 1", "mbit_per_sec": 10.1, "aim_mbit_per_sec": 10}]`,
		"e06-hub-two-servers": `[{"round_trip_ms": {"mean": 0.1}}, {"round_trip_ms": {"mean": 3}}, {"round_trip_ms": {"mean": 0.3}}, {"round_trip_ms": {"mean": 0.2}}]`,
		"e11-uplink":          `[{"case": "8 x 64 KB/s, user", "round_trip_ms": {"median": 25}}, {"case": "8 x no limit", "round_trip_ms": {"median": 900}}]`,
	} {
		for _, v := range Judge(experiment, []byte(`{"figures": `+text+`}`)) {
			require.Equal(t, "pass", v.Word(), v.String())
		}
	}
}

// Each experiment of the papers has a criterion, and each that has one is run by make lab.
func TestEachExperimentIsJudged(t *testing.T) {
	makefile, err := os.ReadFile("../../../Makefile")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^EXPERIMENTS +:= (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, line)
	require.Equal(t, strings.Fields(string(line[1])), Experiments())
	var papers []string
	for _, c := range criteria() {
		papers = append(papers, c.Papers)
		require.True(t, c.Least <= c.Most, c.What)
	}
	for i := range 26 {
		require.True(t, slices.Contains(papers, fmt.Sprintf("E%d", i+1)), i+1)
	}
}
