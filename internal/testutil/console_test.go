package testutil

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocks(t *testing.T) {
	const text = "# Title\n\n```console\n$ true\n# cat <<END\n> a\n> END\na\n  b\n```\nWords.\n```sh\napt install\n```\n"
	blocks, prose := Blocks(text)
	require.Equal(t, "# Title\n\nWords.\n", prose)
	require.Equal(t, []Block{
		{Kind: "console", Line: 4, Text: "$ true\n# cat <<END\n> a\n> END\na\n  b\n"},
		{Kind: "sh", Line: 13, Text: "apt install\n"},
	}, blocks)
	require.Equal(t, []Command{
		{Text: "true", Line: 4, After: 5},
		{Root: true, Text: "cat <<END\na\nEND", Line: 5, Output: "a\n  b\n", After: 10},
	}, Commands(blocks[0]))
	require.Empty(t, Commands(Block{Text: "no prompt\n"})[0].Text)
}

func TestSteady(t *testing.T) {
	for output, want := range map[string]string{
		"pid:4711: 1 MB/s total\n":                  "pid:N: N total",
		"a    12.3 MB   -  1\nb  0 B  - -\n":        "a N N N\nb N N N",
		"  for 1m0s more, 10ms, 40 ms, 96% of it":   " for N more, N, N, N% of it",
		"tcp 10.98.0.1:40001 > 10.98.0.2:873, fd 5": "tcp N > N, fd N",
		"  since     2026-11-21 20:30:00":           " since N",
		"web-1: 8 Mbit/s up":                        "web-N: N up",
		"name: 512K = 524 kB/s; for bits 512kbit":   "name: 512K = N; for bits 512kbit",
		"2 processes and 1 socket, 3 subjects":      "N process and N socket, N subject",
		"`- user:bob  -":                            "`- user:bob N",
		"netnice0q of 1 process (/a.toml:7)\n\n":    "netnice0q of N process (/a.toml:N)\n",
	} {
		require.Equal(t, want, Steady(output), output)
	}
}
