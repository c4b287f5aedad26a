package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const run = `{"Time":"2026-01-02T03:04:05Z","Action":"start","Package":"github.com/netnice/netnice/a"}
{"Action":"pass","Package":"github.com/netnice/netnice/a","Test":"TestQuick","Elapsed":0.1}
{"Action":"output","Package":"github.com/netnice/netnice/a","Test":"TestSlow","Output":"  x.go:1: measured again: the CPUs were 99% busy\n"}
{"Action":"pass","Package":"github.com/netnice/netnice/a","Test":"TestSlow/part","Elapsed":8}
{"Action":"pass","Package":"github.com/netnice/netnice/a","Test":"TestSlow","Elapsed":9}
{"Action":"output","Package":"github.com/netnice/netnice/a","Test":"TestLater","Output":"    x.go:1: in make test-all; meanwhile: TestQuick\n"}
{"Action":"skip","Package":"github.com/netnice/netnice/a","Test":"TestLater","Elapsed":0}
not JSON
{"Action":"fail","Package":"github.com/netnice/netnice/b","Test":"TestFlaky","Elapsed":2}
{"Action":"pass","Package":"github.com/netnice/netnice/b","Test":"TestFlaky","Elapsed":1}
{"Time":"2026-01-02T03:05:05Z","Action":"pass","Package":"github.com/netnice/netnice/b"}
`

func TestReport(t *testing.T) {
	r, err := read(strings.NewReader(run), "")
	require.NoError(t, err)
	var out strings.Builder
	require.True(t, r.print(&out, true))
	require.Equal(t, `ten slowest:
     9.0 s  a TestSlow
     2.0 s  b TestFlaky
     0.1 s  a TestQuick
     0.0 s  a TestLater
failed at first, to be mended in the next change: b TestFlaky
4 passed, 0 failed, 1 skipped, 1 windows measured again and 0 not judged, 60 s
`, out.String())
}

func TestReportFails(t *testing.T) {
	for line, want := range map[string]string{
		`{"Action":"fail","Package":"p","Test":"TestA"}`:                                                                        "failed: p TestA",
		`{"Action":"skip","Package":"p","Test":"TestA"}`:                                                                        "skipped, and must not be: p TestA",
		`{"Action":"output","Package":"p","Test":"T","Output":"no root"}` + "\n" + `{"Action":"skip","Package":"p","Test":"T"}`: "must not be: p T: no root",
		// The package fails after its tests, as for leftover goroutines; the second try runs no test.
		`{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p"}`: "failed: p \n",
	} {
		r, err := read(strings.NewReader(line), "")
		require.NoError(t, err)
		var out strings.Builder
		require.False(t, r.print(&out, true), line)
		require.Contains(t, out.String(), want)
	}
}
