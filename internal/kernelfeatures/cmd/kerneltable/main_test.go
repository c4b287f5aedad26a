package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/kernelfeatures"
)

// The table in docs/reference/kernels.md has a row for each feature that netnice looks for, and no other.
func TestTableHasFeatures(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reference/kernels.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), beginMark)
	lines, _, found := strings.Cut(rest, endMark)
	require.True(t, found)
	var have, want []string
	for line := range strings.Lines(lines) {
		title, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		have = append(have, title)
	}
	for _, f := range new(kernelfeatures.Features).List() {
		if !setting(f.Name) {
			want = append(want, f.Title)
		}
	}
	require.Greater(t, len(have), 2)
	require.Equal(t, want, have[2:], "run the command in the first line of the file")
}
