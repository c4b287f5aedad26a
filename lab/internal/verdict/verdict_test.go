package verdict

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	file := []byte(`{"figures": [{"link": "a line", "ours": {"with_over_without": {"median": 0.96}}}, {"link": "veth", "ours": {"with_over_without": {"median": 0.82}}}]}`)
	list := Judge("e26-throughput", file)
	require.Len(t, list, 2)
	require.Equal(t, "miss", list[0].Word())
	require.Equal(t, "pass", list[1].Word())
	require.Equal(t, "0.96", list[0].Ours())
	require.Equal(t, "at least 0.97", list[0].Wanted())
	require.Contains(t, Table(list), "| E26 | TCP with half of a line of 100 Mbit/s reserved over plain Linux | 0.72 | at least 0.97 | 0.96 | miss |")

	list[0].Because = "of this"
	require.Equal(t, "not reproduced", list[0].Word())
	require.Contains(t, Table(list), "of this")
	require.Equal(t, "not measured", Judge("e26-throughput", nil)[0].Word())
}

func TestFigures(t *testing.T) {
	for experiment, text := range map[string]string{
		"e18-slices":          `{"figure_4": [{"bursts": {"2": 19, "3": 1}, "between_their_beginnings_ms": {"mean": 50}}], "by_slice": [{"over_reserved": 1}]}`,
		"e09-sockets":         `[{"sockets": "first sockets with a limit", "mean_over_limit": [1, 0.99], "first_second_over_limits": 1.9, "sum_per_second_after_6s": {"min": 24000, "max": 24100}}, {"sockets": "beside one from before", "mean_over_limit": [1, 1.01], "first_second_over_limits": 1, "sum_per_second_after_6s": {"min": 24000, "max": 24000}}]`,
		"e20-hog":             `[{"hog_percent": 0, "over_without": 1}, {"hog_percent": 50, "over_without": 0.55}]`,
		"e19-reservations":    `{"phases": [{}, {}, {"mbit_per_sec": [{"mean": 0.18}, {"mean": 3.82}, {"mean": 6}], "wanted_mbit_per_sec": [0.18, 3.82, 6]}], "queue_of_four_ms": {"max": 9}}`,
		"e22-senders":         `[{"phase": "beside four hogs, --cpu auto", "mbit_per_sec": 400, "aim_mbit_per_sec": 400}, {"phase": "alone", "mbit_per_sec": 1, "aim_mbit_per_sec": 400}, {"phase": "Table 1 as printed, run 1", "mbit_per_sec": 10.1, "aim_mbit_per_sec": 10}]`,
		"e06-hub-two-servers": `[{"round_trip_ms": {"mean": 0.1}}, {"round_trip_ms": {"mean": 3}}, {"round_trip_ms": {"mean": 0.3}}, {"round_trip_ms": {"mean": 0.2}}]`,
		"e17-tcp-paths":       `[{"name": "as they are", "payload_bits_per_sec": 5300, "beside_bits_per_sec": 21400, "seconds": 300, "packets_sent": 190}, {"name": "both adapt", "payload_bits_per_sec": 12700, "beside_bits_per_sec": 12500, "seconds": 300, "packets_sent": 364}, {"name": "as they are, TCP of 2001", "payload_bits_per_sec": 9000}, {"name": "both adapt, TCP of 2001", "payload_bits_per_sec": 12000}]`,
		"e24-slots":           `[{"line": "", "write_bytes": 1024, "n": 100, "under_100us": 0.02}, {"line": "", "write_bytes": 2048, "n": 100, "under_100us": 0.2}, {"line": "", "write_bytes": 2048, "n": 50, "under_100us": 0.5, "delayed_time": 0.5}, {"line": "100mbit", "write_bytes": 2048, "n": 100, "under_100us": 1}]`,
		"e27-packet-sizes": `[{"line": true, "write_bytes": 1024, "n": 100, "packets": 1633, "soon": 37, "full": 1595, "full_soon": 0, "short": 38, "short_soon": 37},
			{"line": true, "write_bytes": 2048, "calculates": true, "n": 100, "packets": 2045, "soon": 510, "full": 1532, "full_soon": 0, "short": 513, "short_soon": 510},
			{"line": true, "write_bytes": 2048, "calculates": true, "n": 50, "packets": 9, "soon": 4, "full": 5, "full_soon": 0, "short": 4, "short_soon": 4},
			{"line": false, "write_bytes": 2048, "calculates": true, "n": 100, "packets": 9, "soon": 9, "full": 9, "full_soon": 9}]`,
		"e28-path-in-time": `[{}, {"packets_sent_by_5_s": [34, 0, 30], "packets_lost_by_5_s": [4, 0, 0], "bits_per_sec_by_5_s": [14000, 13000], "payload_bits_per_sec": 13500, "beside_bits_per_sec": 10000}]`,
		"e29-slow-lines": `[{"case": "cable modem, idle", "round_trip_ms": {"median": 22}}, {"case": "cable modem, saturated", "round_trip_ms": {"median": 2200}}, {"case": "cable modem, limited", "round_trip_ms": {"median": 120}, "packet_ms": 100},
			{"case": "DSL, idle", "round_trip_ms": {"median": 21}}, {"case": "DSL, saturated", "round_trip_ms": {"median": 350}}, {"case": "DSL, limited", "round_trip_ms": {"median": 40}, "packet_ms": 15.6},
			{"case": "LAN, idle", "round_trip_ms": {"median": 0.04}}, {"case": "LAN, saturated", "round_trip_ms": {"median": 0.2}}, {"case": "LAN, limited", "round_trip_ms": {"median": 0.1}}]`,
		"e30-whole-file": `[{"name": "16 blocks, as it is", "payload_bits_per_sec": 9000}, {"name": "16 blocks, adapt", "payload_bits_per_sec": 22000, "file": {"whole": true}}, {"name": "16 blocks beside TCP, as it is", "payload_bits_per_sec": 0}, {"name": "16 blocks beside TCP, adapt", "payload_bits_per_sec": 12000, "file": {"whole": true}},
			{"name": "8 blocks beside TCP, adapt", "payload_bits_per_sec": 9000, "file": {"whole": true}}, {"name": "64 blocks, as it is", "payload_bits_per_sec": 9000}, {"name": "64 blocks, adapt", "payload_bits_per_sec": 22000}, {"name": "64 blocks beside TCP, as it is", "payload_bits_per_sec": 0}, {"name": "64 blocks beside TCP, adapt", "payload_bits_per_sec": 12000}]`,
		"e11-uplink": `[{"case": "8 x 64 KB/s, user", "round_trip_ms": {"median": 25}}, {"case": "8 x no limit", "round_trip_ms": {"median": 900}}]`,
	} {
		for _, v := range Judge(experiment, []byte(`{"figures": `+text+`}`)) {
			require.Equal(t, "pass", v.Word(), v.String())
		}
	}
}

// The results of the paper's prototype miss these criteria, so the criteria can fail.
func TestLaterFiguresAreMissed(t *testing.T) {
	for experiment, c := range map[string]struct {
		text string
		word map[string]int
	}{
		"e28-path-in-time": {`[{}, {"packets_sent_by_5_s": [30, 30], "packets_lost_by_5_s": [10, 20], "bits_per_sec_by_5_s": [2000, 6000], "payload_bits_per_sec": 4000, "beside_bits_per_sec": 20000}]`, map[string]int{"miss": 3}},
		"e29-slow-lines":   {`[{"case": "cable modem, idle", "round_trip_ms": {"median": 22}}]`, map[string]int{"not measured": 5}},
		"e30-whole-file":   {`[{"name": "16 blocks, as it is", "payload_bits_per_sec": 9000}, {"name": "16 blocks, adapt", "payload_bits_per_sec": 9000, "file": {"whole": true}}, {"name": "16 blocks beside TCP, as it is", "payload_bits_per_sec": 10}, {"name": "16 blocks beside TCP, adapt", "payload_bits_per_sec": 10, "file": {"whole": false}}]`, map[string]int{"miss": 2, "pass": 1, "not reproduced": 1, "not measured": 3}},
	} {
		words := map[string]int{}
		for _, v := range Judge(experiment, []byte(`{"figures": `+c.text+`}`)) {
			words[v.Word()]++
		}
		require.Equal(t, c.word, words, experiment)
	}
}

// The verdict of several runs is that of their median. Of a run with several values the worst one counts, also where
// one run is too low and the next too high.
func TestMedianOfRuns(t *testing.T) {
	file := func(minute int, figures string) []byte {
		return fmt.Appendf(nil, `{"time": "2026-11-30T10:%02d:00Z", "figures": %s}`, minute, figures)
	}
	single := func(minute int, median float64) []byte {
		return file(minute, fmt.Sprintf(`[{"link": "a line", "ours": {"with_over_without": {"median": %g}}}]`, median))
	}
	several := func(minute int, shares ...float64) []byte {
		rows := ""
		for _, x := range shares {
			rows += fmt.Sprintf(`{"over_reserved": %g},`, x)
		}
		return file(minute, `{"by_slice": [`+strings.TrimSuffix(rows, ",")+`]}`)
	}
	for _, c := range []struct {
		name, experiment, papers string
		files                    [][]byte
		word, ours, others       string
	}{
		{"one miss of three", "e26-throughput", "E26", [][]byte{single(2, 0.99), single(1, 0.9), single(3, 0.98)}, "pass", "0.98", "0.99; 0.9"},
		{"two of three", "e26-throughput", "E26", [][]byte{single(3, 0.99), single(1, 0.9), single(2, 0.95)}, "miss", "0.99", "0.95; 0.9"},
		{"one run", "e26-throughput", "E26", [][]byte{single(3, 0.95)}, "miss", "0.95", ""},
		{"the latest has no figure", "e26-throughput", "E26", [][]byte{single(3, 0.99), file(4, "[]")}, "pass", "-", "0.99"},
		{"none has", "e26-throughput", "E26", [][]byte{file(4, "[]"), file(5, "[]")}, "not measured", "-", "-"},
		{"worst of many", "e18-slices", "E25", [][]byte{several(3, 1, 1), several(2, 0.99, 1.02), several(1, 1, 0.5)}, "pass", "1", "0.99 to 1.02; 0.5 to 1"},
		{"too low, too high, within", "e18-slices", "E25", [][]byte{several(3, 1, 0.9), several(2, 1.1, 1), several(1, 1, 1)}, "miss", "0.9 to 1", "1 to 1.1; 1"},
	} {
		list := Judge(c.experiment, c.files...)
		v := list[slices.IndexFunc(list, func(v Verdict) bool { return v.Papers == c.papers })]
		require.Equal(t, []string{c.word, c.ours, c.others}, []string{v.Word(), v.Ours(), v.OtherRuns()}, c.name)
		if len(c.files) > 1 {
			require.Contains(t, Table(list), "| "+c.ours+" | "+c.others+" | "+c.word+" |", c.name)
			require.Contains(t, Table(list), "| latest run | other runs |", c.name)
		} else {
			require.NotContains(t, Table(list), "other runs", c.name)
		}
	}
}

func TestRuns(t *testing.T) {
	run := RunOf("e02-change", []byte(`{"time": "2026-11-30T10:27:00.934Z", "machine": {"load": "0.12", "netnice": "0.1.0~7"}}`))
	require.Contains(t, Runs([]Run{run}), "| e02-change | 2026-11-30 10:27 | 0.1.0~7 | 0.12 |\n")
}

// Each experiment of the papers has a criterion, and make experiments runs each experiment with a criterion.
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
	for i := range 30 {
		require.True(t, slices.Contains(papers, fmt.Sprintf("E%d", i+1)), i+1)
	}
}

// The list of the papers' mechanisms and experiments has a row for each experiment. It names only experiments with a
// criterion, and only existing tests.
func TestPapersAreListed(t *testing.T) {
	list, err := os.ReadFile("../../../docs/internals/papers.md")
	require.NoError(t, err)
	judged := map[string]bool{}
	for _, c := range criteria() {
		judged[c.Papers] = true
		require.Regexp(t, `(?m)^\| `+c.Papers+` \|`, string(list), "a row of the list")
	}
	for _, name := range regexp.MustCompile(`\bE[0-9]+\b`).FindAllString(string(list), -1) {
		require.True(t, judged[name], name)
	}
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[name[1]] = true
		}
		return err
	}))
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(list), -1) {
		require.True(t, tests[name], name)
	}
}
