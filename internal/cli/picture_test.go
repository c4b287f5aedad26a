package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/internal/testutil"
)

// The commands of README.md's picture are valid, and README.md or the guide has each of them.
func TestPictureCommands(t *testing.T) {
	picture := document{path: "docs/img/terminal.md"}
	text, err := os.ReadFile(project + picture.path)
	require.NoError(t, err)
	picture.blocks, _ = testutil.Blocks(string(text))
	shown := false
	known := map[string]bool{}
	for _, d := range documents(t) {
		shown = shown || d.path == "README.md" && strings.Contains(d.prose, "](docs/img/terminal.svg)")
		for _, line := range d.commands() {
			command, _, _ := strings.Cut(line, "  #")
			known[strings.TrimSpace(command)] = true
		}
	}
	require.True(t, shown, "README.md shows the picture")
	require.Greater(t, len(picture.commands()), 3)
	for _, command := range picture.commands() {
		checkRemedy(t, picture.path, command, true)
		require.True(t, known[strings.TrimSpace(command)], "README.md and the guide have no command %s", command)
	}
}
